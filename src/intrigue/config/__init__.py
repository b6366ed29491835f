"""Everything a user can set, checked before torch is loaded."""
