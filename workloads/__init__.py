"""Training programs whose stages are real: files read, images decoded, text tokenised, games played.

Each is a script: `python -m workloads.NAME --help`. Names: vgg16, vgg19, resnet18, shufflenet_v2_x1_0; bert, gpt2;
a2c, dqn. `python -m workloads.data --help` makes data for them.

| module | what |
|---|---|
| `loop` | the training loop; the only module that touches the trainer SDK |
| `workload` | what the loop drives: read, prepare, loss, and the state to resume from |
| `communicator` | how processes of one job exchange gradients |
| `checkpoint` | a training's state to and from a file |
| `command` | options and exit codes that all scripts share |
| `order` | which sample comes when |
| `vision`, `language`, `rl` | the families |
"""
