"""What was meant: tables in the wrong place, scores of results, and points of little length."""

import warnings

import numpy as np
import pytest
from instances import check_raises

import fastmargin as fm

X = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, -1.0], [4.0, 2.0]])
Y = np.array([1, 1, -1, -1])
K = fm.gram(X)


def fitted():
    return fm.MaxMarginClassifier(C=1.0).fit(X, Y)


# ======================================================================================================
# WHAT WAS MEANT
# ======================================================================================================


def test_low_rank_and_a_diagonal():
    """Features with the rest of the diagonal as a ridge are the matrix of both."""
    rest = np.array([0.5, 0.0, 1.0, 2.0])
    G = fm.features(X, Y, normalize=None, ridge=rest)
    np.testing.assert_allclose(np.asarray(G), np.outer(Y, Y) * (X @ X.T) + np.diag(rest))


def test_coefficients_of_columns_are_those_of_the_linear_kernel():
    model = fm.MaxMarginClassifier()
    assert model.set_params(kernel="linear").fit(X, Y).coef_.shape == (1, 2)
    model.set_params(kernel="rbf").fit(X, Y)
    assert not hasattr(model, "coef_")


def test_points_far_shorter_than_the_constant_feature():
    """The bias of several classes is penalised: then points of 1e-13 are lost beside the constant 1."""
    rng = np.random.default_rng(0)
    points = 1e-13 * rng.normal(size=(60, 3))
    labels = np.argmax(points, axis=1)
    with pytest.warns(UserWarning, match="one scale|finite C") as told:
        fm.MaxMarginClassifier("linear").fit(points, labels)
    model = fm.MaxMarginClassifier("linear", intercept_scaling=3e-13).fit(points, labels)
    assert len(told) == 1 and model.status_ == "certified"


def test_a_row_without_length_has_a_class_beside_a_constant():
    new = [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    with_constant = fm.MaxMarginClassifier("linear", normalize="unit", intercept_scaling=1.0, C=1.0)
    assert with_constant.fit(X, Y).predict(new).size == 3


# ======================================================================================================
# TABLES
# ======================================================================================================

ON_TABLES = {  # every function that is given signed tables
    "norm_margin": lambda Z, **options: fm.norm_margin(Z, "nuclear", max_iter=3, **options),
    "norm_certificate": lambda Z, **options: fm.norm_certificate(
        Z, "nuclear", np.ones(np.shape(Z)[1:]), np.full(len(Z), 1 / len(Z)), **options
    ),
    "steepest_descent": lambda Z, **options: fm.steepest_descent(Z, "l2", max_iter=3, **options),
}


@pytest.mark.parametrize("function", ON_TABLES)
def test_tables_are_refused_by_name_and_with_a_remedy(function):
    call = ON_TABLES[function]
    tables = np.ones((4, 2, 3))
    bad = tables.copy()
    bad[1, 0, 2] = np.nan
    dates = np.full((4, 2, 3), np.datetime64("2024-01-01"))
    words = tables.astype(object)
    words[2, 1, 0] = "five"
    for given, error, said in (
        (np.ones((4, 2, 3, 1)), ValueError, ["Z", "(n, d)", "(n, k, d)", "(4, 2, 3, 1)"]),
        (np.ones((4, 0, 3)), ValueError, ["Z", "empty", "(4, 0, 3)"]),
        (bad, ValueError, ["Z", "finite", "row 1", "Z[1, 0, 2]"]),
        (dates, TypeError, ["Z", "real numbers", "column (0, 0)", "date", "in seconds"]),
        (words, TypeError, ["Z", "real numbers", "row 2, column (1, 0)", "'five'"]),
        (1e200 * tables, ValueError, ["Z", "1e+200", "rescale"]),
        (0.0 * tables, ValueError, ["G"]),
    ):
        check_raises(lambda given=given: call(given), error, said)
    said = ["Z", "(4, 2, 3)", "signs already", "leave labels out"]
    check_raises(lambda: call(tables, labels=[0, 1, 0, 1]), ValueError, said)


OVERLAPPING = fm.features([[1.0, 0.0], [2.0, 0.0], [-1.0, 1.0]], [1, -1, 1])


def test_scores_of_a_result_without_a_separator_are_said_to_be_such():
    """Of weights and of a result with a margin they are silent."""
    result = fm.max_margin(OVERLAPPING)
    assert result.status == "infeasible"
    with pytest.warns(UserWarning, match="ridge"):
        OVERLAPPING.decision_function(result, np.eye(2))
    separable = fm.features(np.eye(2), [1, -1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OVERLAPPING.decision_function(result.alpha, np.eye(2))
        separable.decision_function(fm.max_margin(separable), np.eye(2))


def test_restrict_is_g_on_some_of_the_points():
    G = fm.gram(np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]]), [1, -1, 1])
    index = np.array([2, 0])
    part = G.restrict(index)
    assert np.array_equal(np.asarray(part), np.asarray(G)[np.ix_(index, index)])
    assert part.labels.tolist() == [1, 1]
