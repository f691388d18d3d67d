"""Courses: when they take place, and whether all their students find room at once."""
