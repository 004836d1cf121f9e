"""The first fit that a reader sees: ``python docs/first_fit.py`` draws its picture and prints its table.

The seed makes both the same again. It would void the guarantee for people whose records were private; these are public.
"""

from pathlib import Path

from sklearn.datasets import load_diabetes

from dpfast import MultiOutcomeRidge

PICTURE = Path(__file__).parent / "_static" / "first_fit.png"


def fit() -> MultiOutcomeRidge:
    """Return the fitted model; a test compares its table with the home page's."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = MultiOutcomeRidge(
        epsilon=3.0,
        delta=1e-5,
        box_x={"age": (18, 80), "sex": (1, 2), "bmi": (15, 45), "bp": (60, 140)},
        bound_y=350.0,
        random_state=0,
    )
    return model.fit(X[["age", "sex", "bmi", "bp"]], y)


def main() -> None:
    """Draw and print."""
    model = fit()
    axes = model.plot(title="Progression of diabetes, 442 people, epsilon 3")
    axes.figure.savefig(PICTURE, dpi=120)
    print(model.summary().round(2))


if __name__ == "__main__":
    main()
