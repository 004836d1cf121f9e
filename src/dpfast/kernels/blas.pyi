from typing import Any, Final

PRODUCTS: Final[Any]
