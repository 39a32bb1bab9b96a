"""Recipes that are made up: as many as wanted, the same every time, spread over their ranges."""

from __future__ import annotations

from collections import Counter

import pytest

from retargetbench.datasets.studio.recipes import _ADULT, more_recipes, read_recipes


def test_the_first_of_many_are_those_of_few_and_another_seed_gives_others():
    many = more_recipes(57, seed=3)
    assert len({recipe.name for recipe in many}) == 57
    assert more_recipes(7, seed=3) == many[:7]
    assert more_recipes(57, seed=4)[0] != many[0]
    assert more_recipes(0) == ()
    assert not {recipe.name for recipe in many} & {recipe.name for recipe in read_recipes()}


def test_they_are_mostly_adults_and_every_fourth_is_unseen():
    recipes = more_recipes(80)
    kinds = Counter(recipe.kind for recipe in recipes)
    assert kinds == {"adult": 56, "child": 12, "stylised": 12}
    assert sum(recipe.seen for recipe in recipes) == 60
    assert {recipe.kind for recipe in recipes if not recipe.seen} == {"adult", "child", "stylised"}


def test_unseen_bodies_have_triangulations_that_no_seen_body_has():
    recipes = (*read_recipes(), *more_recipes(80))
    seen = {recipe.mesh for recipe in recipes if recipe.seen}
    new = {recipe.mesh for recipe in recipes if not recipe.seen} - seen
    assert len(new) >= 4
    assert 3 * sum(recipe.mesh.kind != "original" for recipe in recipes) >= len(recipes)


@pytest.mark.parametrize("name", list(_ADULT))
def test_each_fourteenth_of_an_adult_range_has_one_of_fourteen_adults(name):
    adults = [recipe for recipe in more_recipes(20) if recipe.kind == "adult"]
    low, high = _ADULT[name]
    slots = sorted(14 * (recipe.phenotype[name] - low) / (high - low) for recipe in adults)
    # Values are rounded to hundredths.
    slack = 14 * 0.0051 / (high - low)
    assert all(k - slack <= slot <= k + 1 + slack for k, slot in enumerate(slots))


def test_ranges_of_adults_are_about_those_of_the_frozen_ones():
    frozen = [recipe.phenotype for recipe in read_recipes() if recipe.kind == "adult"]
    for name, (low, high) in _ADULT.items():
        values = [phenotype[name] for phenotype in frozen]
        assert low <= min(values) <= low + 0.1
        assert high - 0.1 <= max(values) <= high
