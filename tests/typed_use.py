"""A user's program that a type checker reads and nobody runs: it says what the public functions take and return."""

from typing import Unpack

import numpy as np

import fastmargin as fm

X = np.eye(3)
y = [1, 1, -1]


class Rows(fm.Gram):
    unit = 2.0**-53
    n = 3
    d = 3

    def _diagonal(self) -> np.ndarray:
        return np.ones(3)

    def _product(self, v: np.ndarray) -> np.ndarray:
        return v


def step(G: fm.Gram, k: int, until: int, alpha: np.ndarray, m: np.ndarray) -> int:
    fm.product(G, alpha, m)
    fm.add_column(G, 0, 1.0, m)
    return until


def stop(partial: fm.Result) -> bool:
    return partial.lower > 0.5


def twice(G: fm.Gram, **options: Unpack[fm.RunOptions]) -> fm.Result:
    return fm.momentum(G, start=fm.momentum(G, **options), max_iter=3)


options: fm.RunOptions = {"tol": 1e-3, "trace_at": range(3)}
results: list[fm.Result] = [
    fm.snkp(np.eye(3), eps=1e-3, **options),
    twice(Rows(), tol=0.1),
    fm.momentum(
        fm.gram(X, y, kernel=lambda A, B: A @ B.T, ridge=0.5),
        tol=1e-3,
        trace_at=[1, 2],
        callback=stop,
    ),
    fm.perceptron(np.eye(3), rule="worst", start=None),
    fm.snkp(Rows()),
    fm.winnow([[1.0, 0.5]]),
    fm.norm_margin(X, "spectral", labels=[0, 1, 2], tol=1e-3),
    fm.norm_margin(np.ones((3, 2, 2)), "nuclear", start=(np.eye(2), [1.0, 0.0, 0.0])),
    fm.steepest_descent(X, "l2", start=X[0]),
    fm.steepest_descent(X, fm.NORMS["linf"], momentum=0.9, loss="logistic"),
    fm.diagonal_descent(fm.features(X, y, intercept="free"), lam=lambda t: 1.0 / t, step=0.1),
    fm.max_margin(fm.lazy_gram(X, y, gamma=0.5), start=np.ones(3)),
    fm.drive(
        fm.pair_gram(fm.features(X), [0, 1, 2], 3),
        step,
        (np.zeros(6), np.zeros(6)),
        lambda alpha, m: (alpha, alpha, m, m),
        max_iter=3,
        eps=1e-3,
        **options,
    ),
]
lower: float = results[0].lower
status: str = results[0].status
interval: tuple[float, float] = fm.certificate(
    np.eye(3), results[0].alpha, results[0].p, precise=True
)
share: float = fm.separator_margin(fm.features(X, y), [1.0, 1.0, -1.0])[0]
box: fm.Norm = fm.NORMS["linf"]._replace(project=lambda w: np.clip(w, -1.0, 1.0))
bounds: tuple[float, float] = fm.norm_certificate(X, box, X[0], [1.0, 0.0, 0.0])
G: fm.Gram = fm.gram(X, y, kernel="rbf", intercept="free")
result: fm.Result = fm.max_margin(G)
scores: np.ndarray = G.decision_function(result, X)
of_weights: np.ndarray = fm.features(X, y).decision_function([0.5, 0.5, 1.0], X)
bias: float = result.bias
K: fm.Gram = fm.lazy_gram(X)
other: fm.Result = fm.momentum(K.signed([1, -1, 1]))
matrix: np.ndarray = np.asarray(G)
held: np.ndarray = fm.Gram(np.eye(3)).dense()
products: np.ndarray = fm.features(X, 1, normalize=None).with_ridge(0.5) @ np.ones((3, 2))
labels: np.ndarray | None = G.labels
kernel: fm.Kernel | None = G.kernel
name: str = kernel.name if kernel is not None else ""
facts: tuple[str | None, float | str, np.ndarray | float] = (G.normalize, G.intercept, G.ridge)
sizes: tuple[int, int | None] = (len(G), G.d)
guesses: np.ndarray = (
    fm.MaxMarginClassifier("rbf", C=1.0, class_weight={"a": 2.0}).fit(X, ["a", "b", "b"]).predict(X)
)
error: float = fm.Rounding.of_rows(3, 3).margins

fm.momentum(np.eye(3), max_iter="many")  # type: ignore[arg-type]
fm.momentum(np.eye(3), max_iterations=3)  # type: ignore[call-arg]
fm.snkp(np.eye(3), start=results[0].alpha)  # type: ignore[arg-type]
fm.norm_margin(X, "l2", start="w")  # type: ignore[arg-type]
fm.max_margin(np.eye(3), tol="small")  # type: ignore[arg-type]
twice(Rows(), callback=3)  # type: ignore[arg-type]
fm.product(np.eye(3), X[0], X[0])  # type: ignore[arg-type]
fm.lazy_gram(X, y, kernel=np.dot)  # type: ignore[arg-type]
G.decision_function("alpha")  # type: ignore[call-arg]
K.signed([1, -1, 1], intercept="free")  # type: ignore[call-arg]
fm.norm_margin(X, 3)  # type: ignore[arg-type]
words: str = results[0].p  # type: ignore[assignment]
