"""Beyond one machine: everything here needs an extra and is loaded only when used."""
