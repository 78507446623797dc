# A part of a tree is changed after its sum was taken, so the sums differ, and the program aborts.
import os

def total(tree):
    value, children = tree
    return value + sum(total(child) for child in children)

def build(depth):
    if depth == 0:
        return [1, []]
    return [depth, [build(depth - 1), build(depth - 1)]]

def spoil(tree):
    tree[1][0][0] = len("spoilt")

tree = build(3)
before = total(tree)
spoil(tree)
after = total(tree)
if before != after:
    os.abort()
