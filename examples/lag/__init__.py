"""How far behind a query is, seen from outside by a group's tool."""
