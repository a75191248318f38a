"""What metrics beyond accuracy know of items and users apart from the ranked lists."""

from dataclasses import dataclass, replace

from evaluation.arrays import BoolArray, FloatArray, IntArray, SparseRows


@dataclass(frozen=True)
class CatalogueFacts:
    """Facts of a catalogue, see `facts.catalogue_facts`.

    Attributes:
        n_items: Number of items that can be recommended.
        n_users: Number of users in the training data.
        popularity: float64 [items], users who took each item in training; None if unknown.
        own_popularity: float64 [all users], mean popularity of what each user took in training, nan for a user
            without history; None if unknown.
        expected: int64 [judged users, K], what the most popular unseen items are, the list anybody would expect.
        vectors: CSR [items, attributes] of unit rows (0 where nothing is known); None without attributes.
    """

    n_items: int
    n_users: int = 0
    popularity: FloatArray | None = None
    own_popularity: FloatArray | None = None
    expected: IntArray | None = None
    vectors: SparseRows | None = None

    def of_users(self, kept: BoolArray) -> "CatalogueFacts":
        """The facts for some of the judged users."""
        return self if self.expected is None else replace(self, expected=self.expected[kept])

    def has(self, need: str) -> bool:
        """Whether a fact is known: "popularity" or "attributes"; "" needs nothing."""
        known = {"": True, "popularity": self.popularity is not None, "attributes": self.vectors is not None}
        return known[need]
