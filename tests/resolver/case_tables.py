"""All cases by rule, in the order of the rules. See `cases` for what they are."""

from __future__ import annotations

from tests.resolver.cases_of_clusters import HOSTS, SHARED
from tests.resolver.cases_of_combinations import EXACT, KNOWN_BAD
from tests.resolver.cases_of_drivers import CUDA, DRIVERS, FRAMEWORKS
from tests.resolver.cases_of_names import NAMES, SITES
from tests.resolver.cases_of_sharing import SHARING

CASES = [
    *DRIVERS,
    *CUDA,
    *FRAMEWORKS,
    *SHARING,
    *SHARED,
    *HOSTS,
    *KNOWN_BAD,
    *EXACT,
    *NAMES,
    *SITES,
]
