#!/usr/bin/env python3
"""Continues a text and prints it meanwhile: first_text.py MODEL [DEVICES]"""
import sys

import plait

START = 'Once upon a time'

try:
    with plait.Model(sys.argv[1]) as model, \
            plait.Engine(model, devices=''.join(sys.argv[2:3]) or 'cpu') as engine:
        print(START, end='')
        for piece in engine.generate(START, max_tokens=48, temperature=0):
            print(piece, end='', flush=True)
        print()
except plait.Error as e:
    sys.exit(f'first_text: {e}')
