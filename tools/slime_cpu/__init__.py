"""slime on a machine without a GPU: its unedited train.py, Megatron-LM, Ray, SGLang and its router, for a model of a million parameters.

Components that need a GPU are replaced by CPU substitutes, each in a module that documents it:

    cuda          torch.cuda, as Megatron calls it
    accelerator   a CPU for slime's own registry of devices
    layers        Transformer Engine's layers, under the names by which slime converts checkpoints
    precision     float32, where slime asks for bfloat16, unless the run does too
    optimizer     torch's Adam, where Megatron's checkpoints know those of Transformer Engine and Apex
    absent        packages that are imported and never called

`site/sitecustomize.py` installs them in every process that has `site` on its PYTHONPATH. The other modules start such processes:

    sources       slime's and Megatron's sources: found, unpacked or cloned
    run           a run by scripts/run_matching.sh: SGLang, the script, progress on the screen, the exported model
    bin, job      the commands `ray` and `nvidia-smi` that the script calls
    driver        Ray, and slime's script in it

This package is outside slim_rl and imports it as a user's program would; nothing in slim_rl imports it.
"""
