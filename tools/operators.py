"""Small changes of a module's syntax tree, each a way to be wrong about privacy that still looks right.

A mutant is named FILE:FUNCTION:OPERATOR:N, the N-th place in that function that the operator changes, from 0: what is
written elsewhere in the file does not rename it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES |= {opposite: one for one, opposite in _OPPOSITES.items()}
# Of a product the other factor is left, of a sum the other term, and so on; of the rest, what stands to the left.
_BOTH_SIDES = {ast.Mult: "factor", ast.Add: "term", ast.BitAnd: "bit", ast.BitOr: "bit"}
_LEFT_SIDE = {ast.Sub: "term", ast.Div: "divisor", ast.FloorDiv: "divisor", ast.Mod: "divisor", ast.Pow: "power"}
_LEFT_SIDE |= {ast.LShift: "shift", ast.RShift: "shift"}
_OTHER_NAMES = (
    "min max", "minimum maximum", "fmin fmax", "any all", "floor ceil", "up down", "sqrt_up sqrt_down",
    "argmin argmax", "zeros ones", "reserving reserve",
)  # fmt: skip
_SWAPS = {one: other for pair in _OTHER_NAMES for one, other in (pair.split(), pair.split()[::-1])}
_SWAPS |= {"sum": "max", "bitwise_and": "bitwise_or", "union1d": "append"}
# Calls in whose place their first argument may stand: what bounds, rounds or reorders it.
_SKIPPED = {"clip", "shortened", "nextafter", "abs", "fabs", "sqrt", "square", "up", "down", "sqrt_up", "sqrt_down"}
_SKIPPED |= {"rounded_bound", "log1p", "expm1", "rint", "unique", "sorted", "frozenset", "optional", "cumsum", "hypot"}
_SKIPPED |= {"escape", "public_rows"}
_METHODS = {"check_finite", "paid"}  # in their place, what they are called of
# What makes noise too small, halved or doubled.
_HALVED = {"scale", "sensitivity", "bound", "radius", "error", "size", "clip", "reach", "limit", "length", "deviation"}
_HALVED |= {"norm", "weight", "change", "cost", "tau", "largest", "most", "gradient", "curvature", "tolerance"}
_DOUBLED = {"epsilon", "delta", "mu", "rate", "beta", "share", "gamma"}
_UNSEEN = ("annotation", "returns", "decorator_list", "bases", "keywords", "type_params")
_HARMLESS = ("strict", "dtype", "copy")  # arguments that make an error earlier or a table larger


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change at one place; `code` compiles the module with it."""

    id: str
    file: str
    function: str
    _module: ast.Module
    _holder: tuple[ast.AST, str, int | None]
    _old: ast.AST
    _new: ast.AST

    @property
    def change(self) -> str:
        return f"line {self._old.lineno}: {_shown(self._old)}  ->  {_shown(self._new)}"

    def code(self) -> CodeType:
        """Return the module's code with the change."""
        holder, name, index = self._holder

        def put(node: ast.AST) -> None:
            if index is None:
                setattr(holder, name, node)
            else:
                getattr(holder, name)[index] = node

        put(ast.copy_location(self._new, self._old))
        try:
            return compile(ast.fix_missing_locations(self._module), self.file, "exec", dont_inherit=True)
        finally:
            put(self._old)


def mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a module, by line."""
    module, found, numbers = ast.parse(text), [], Counter()
    for holder, function, node in _places(module, "<module>"):
        for operator, new in _changes(node):
            place = f"{file}:{function}:{operator}"
            found.append(Mutant(f"{place}:{numbers[place]}", file, function, module, holder, node, new))
            numbers[place] += 1
    return found


def functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its name, as mutants have it."""
    waiting: list[tuple[str, ast.AST]] = [("", module)]
    while waiting:
        prefix, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            name = f"{prefix}.{child.name}".lstrip(".") if named else prefix
            waiting.append((name, child))
            if isinstance(child, ast.FunctionDef):
                yield name, child


def _places(node: ast.AST, function: str) -> Iterator[tuple[tuple[ast.AST, str, int | None], str, ast.AST]]:
    """Yield every node that may be changed, where it hangs, and the function that it is in."""
    for name, value in ast.iter_fields(node):
        if name in _UNSEEN and not isinstance(node, ast.Call):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            if (isinstance(child, ast.keyword) and child.arg in _HARMLESS) or _is_of_types(child):
                continue
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            if named and (child.name.startswith("_repr") or child.name in ("__repr__", "__str__", "__dir__")):
                continue
            inner = f"{function}.{child.name}".removeprefix("<module>.") if named else function
            if hasattr(child, "lineno"):
                yield (node, name, index), inner, child
            yield from _places(child, inner)


def _is_of_types(node: ast.AST) -> bool:
    """Whether this is a type with parameters, by the name of what is subscripted, or what type checkers alone see."""
    if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
        return True
    name = _last_name(node.value) if isinstance(node, ast.Subscript) else ""
    return name in ("tuple", "list", "dict", "type") or (name[:1].isupper() and not name.isupper())


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in the place of a node, with the operator that puts it there."""
    match node:
        case ast.Compare(left, ops, comparators):
            for place, (kind, swaps) in [(k, pair) for k in range(len(ops)) for pair in _COMPARISONS]:
                if other := swaps.get(type(ops[place])):
                    yield kind, ast.Compare(left, [*ops[:place], other(), *ops[place + 1 :]], comparators)
        case ast.BoolOp(op, values):
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                yield "operand", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "not" if isinstance(node.op, ast.Not) else "minus", operand
        case ast.BinOp(left, op, right):
            if kind := _BOTH_SIDES.get(type(op)):
                yield kind, left
                yield kind, right
            elif kind := _LEFT_SIDE.get(type(op)):
                yield kind, left
            if isinstance(op, ast.Add | ast.Sub):
                yield "sign", ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), right)
        case ast.List([_, _, *_] as elements, ast.Load()) | ast.Tuple([_, _, *_] as elements, ast.Load()):
            yield "element", type(node)(elements[:-1], ast.Load())
        case ast.Constant(bool()):
            yield "flag", ast.Constant(not node.value)
        case ast.Constant(int()):
            yield "number", ast.Constant(node.value + 1)
            if node.value > 1:
                yield "number", ast.Constant(node.value - 1)
        case ast.Constant(float()):
            yield "number", ast.Constant(0.5 * node.value or 1.0)
        case ast.Constant("replace_one" | "add_remove"):
            yield "adjacency", ast.Constant("add_remove" if node.value == "replace_one" else "replace_one")
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.If(_, body, orelse):
            yield "never", ast.If(ast.Constant(False), body, orelse)
            yield "always", ast.If(ast.Constant(True), body, orelse)
        case ast.IfExp(_, body, orelse):
            yield "never", orelse
            yield "always", body
        case ast.While(_, body, orelse):
            yield "never", ast.While(ast.Constant(False), body, orelse)
        case ast.AugAssign(target, op, value):
            yield "statement", ast.Pass()
            if isinstance(op, ast.Add | ast.Sub):
                yield "sign", ast.AugAssign(target, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), value)
        case ast.Expr(ast.Call()) | ast.Delete() | ast.Continue() | ast.Break():
            yield "statement", ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()
        case ast.With(items, body) if not any(item.optional_vars for item in items):
            yield "with", ast.If(ast.Constant(True), body, [])
        case ast.Try(body, handlers, orelse, finalbody) if finalbody:
            yield "finally", ast.Try(body, handlers, orelse, []) if handlers else ast.If(ast.Constant(True), body, [])
        case ast.Try(body, handlers, orelse, []) if len(handlers) == 1:
            yield "handler", ast.If(ast.Constant(True), [*body, *orelse], [])
        case ast.ListComp(element, [ast.comprehension(target, over, [_, *rest], 0), *more]):
            yield "filter", ast.ListComp(element, [ast.comprehension(target, over, rest, 0), *more])
        case ast.GeneratorExp(element, [ast.comprehension(target, over, [_, *rest], 0), *more]):
            yield "filter", ast.GeneratorExp(element, [ast.comprehension(target, over, rest, 0), *more])


_COMPARISONS = (("edge", _EDGES), ("opposite", _OPPOSITES))


def _changes_of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = _last_name(node.func)
    if other := _SWAPS.get(name):
        owner = () if isinstance(node.func, ast.Name) else (node.func.value,)
        func = (ast.Attribute if owner else ast.Name)(*owner, other, ast.Load())
        yield "swap", ast.Call(func, node.args, node.keywords)
    if name in _SKIPPED and node.args and not isinstance(node.args[0], ast.Starred):
        yield "skip", node.args[0]
    if isinstance(node.func, ast.Attribute) and _last_name(node.func.value) == "check" and len(node.args) > 1:
        yield "unchecked", node.args[1]
    if name in _METHODS and isinstance(node.func, ast.Attribute):
        yield "skip", node.func.value
    if name in ("draw", "draw_columns") and len(node.args) > 2:
        yield "noiseless", node.args[2]
    if name in ("min", "max", "minimum", "maximum") and len(node.args) == 2 and not node.keywords:
        yield "operand", node.args[0]
        yield "operand", node.args[1]
    for place, argument in enumerate(node.args):
        for kind, other in _weaker(argument):
            yield kind, ast.Call(node.func, [*node.args[:place], other, *node.args[place + 1 :]], node.keywords)
    for place, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in _HARMLESS:
            rest = [*node.keywords[:place], *node.keywords[place + 1 :]]
            yield "keyword", ast.Call(node.func, node.args, rest)


def _weaker(argument: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what asks for less noise than an argument whose name, or whose function's, ends with a telling word."""
    word = _last_name(argument.func if isinstance(argument, ast.Call) else argument).strip("_").split("_")[-1]
    if {word, word.removesuffix("s")} & _HALVED:
        yield "half", ast.BinOp(ast.Constant(0.5), ast.Mult(), argument)
    elif {word, word.removesuffix("s")} & _DOUBLED:
        yield "double", ast.BinOp(ast.Constant(2.0), ast.Mult(), argument)
    elif word in ("rest", "left"):  # the whole budget once more
        owner = () if isinstance(argument, ast.Name) else (argument.value,)
        yield "whole", (ast.Attribute if owner else ast.Name)(*owner, "privacy", ast.Load())


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _shown(node: ast.AST) -> str:
    """Return the first line of a piece of code, and how it goes on."""
    text = ast.unparse(ast.fix_missing_locations(node)).strip()
    first, _, rest = text.partition("\n")
    return f"{first} ..." if rest else first
