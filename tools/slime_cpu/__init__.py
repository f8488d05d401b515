"""slime on a machine without a GPU: its unedited train.py, Megatron-LM, Ray, SGLang and its router, for a model of a million parameters.

What cannot be there without a GPU is stood in for, each thing in a module of its own that says why:

    cuda          torch.cuda, as Megatron calls it
    accelerator   a CPU for slime's own registry of devices
    layers        Transformer Engine's layers, under the names by which slime converts checkpoints
    precision     float32, where slime asks for bfloat16, unless the run does too
    optimizer     torch's Adam, where Megatron's checkpoints know those of Transformer Engine and Apex
    absent        packages that are imported and never called

`site/sitecustomize.py` installs them in every process that has `site` on its PYTHONPATH. All else here starts such processes:

    sources       slime's and Megatron's sources: found, unpacked or cloned
    driver        Ray, and slime's script in it
    run           a run: its flags, its processes, its lines on the screen, its end

It stands outside the package, and imports slim_rl as a user's own program would; nothing in slim_rl imports it.
"""
