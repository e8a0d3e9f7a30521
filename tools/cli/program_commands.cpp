// The commands beside training.
#include "cli/command_table.hpp"
#include "cli/commands.hpp"

namespace prun {
namespace {

constexpr CommandOption json = {"--json", "", "as JSON, for programs"};
constexpr CommandOption measured_json = {"--json", "", "what was measured, as the cost table has it"};
constexpr CommandOption quiet = {"--quiet", "", "say only what is not good"};
constexpr CommandOption costs = {"--costs", "FILE",
                                 "the cost table, in place of the one that prun bench writes"};
constexpr CommandOption out_costs = {"--out", "FILE", "the cost table that results are added to"};
constexpr CommandOption one_setting = {"--setting", "SETTING", "that one alone"};
constexpr CommandOption steps_of_each = {"--steps", "N", "steps of each, 20"};
constexpr CommandOption out_results = {"--out", "FILE", "results in a file: .json or .csv"};
constexpr CommandOption weights_type = {"--type", "bf16|fp32",
                                        "the type of the weights; as they are otherwise"};

const std::vector<Command> programs = {
    {"trace",
     "RECIPE",
     "what every queue does when, as a trace for ui.perfetto.dev; ranks are threads, or processes where "
     "the device wants that",
     {{"--steps", "N", "steps, 3"},
      {"--out", "FILE", "the trace, NAME.trace.json"},
      {"--simulated", "", "from the cost table, without running"},
      costs},
     trace_command},
    {"bench kernels",
     "[RECIPE]",
     "measure this machine's kernels, a recipe's own with its exchanges too, into the cost table",
     {{"--no-grid", "", "the recipe's alone"}, measured_json, out_costs},
     bench_command},
    {"bench comm",
     "[RECIPE]",
     "measure exchanges between ranks, of a recipe's device and comm plugin between its ranks, into the "
     "cost "
     "table",
     {{"--ranks", "N", "without a recipe: among so many threads, 2"}, measured_json, out_costs},
     bench_command},
    {"bench io",
     "FOLDER...",
     "measure the drives of these folders as a tier uses them: read, written and both at once, by "
     "several "
     "sizes and numbers of transfers, into the cost table",
     {{"--tier", "NAME", "the tier's plugin, where there are several"},
      {"--stripe", "KIB", "of that size alone, 1024"},
      {"--depth", "N", "so many at a time alone, 16"},
      {"--file-size", "SIZE", "of all files together, 512MiB"},
      json,
      out_costs},
     bench_command},
    {"bench settings",
     "RECIPE",
     "train it with each value of a key in turn and show what each costs and saves",
     {{"--key", "KEY", "of the recipe, strategy.0.stage say", true},
      {"--values", "VALUES", "with commas between; the others are compared with the first", true},
      one_setting,
      steps_of_each,
      json,
      out_results},
     bench_command},
    {"bench",
     "STRATEGY RECIPE",
     "the same of a strategy with each of the settings that it lists; prun help bench says which do",
     {one_setting, steps_of_each, json, out_results},
     bench_command},
    {"eval",
     "CKPT",
     "its loss on the validation data, without training: a checkpoint, or the latest in a run's folder, in "
     "the layout of "
     "its recipe or in any other that --set gives it",
     {{"--batches", "N", "batches to take, eval.batches of the recipe"}, json},
     eval_command},
    {"generate",
     "CKPT [TEXT]",
     "what it goes on with: the likeliest token each time, or one that is drawn",
     {{"--tokens", "1,2,3", "tokens in place of a text"},
      {"--max-tokens", "N", "tokens to add"},
      {"--temperature", "T", "draw, the more evenly the higher it is"},
      {"--top-p", "P", "draw among the likeliest that have this share together"},
      {"--seed", "N", "of what is drawn, 1"},
      {"--tokenizer", "FILE", "a tokenizer.json, in place of the one beside the checkpoint or bytes"}},
     generate_command},
    {"ckpt ls", "RUN", "the checkpoints in the folder of a run", {json}, ckpt_command},
    {"ckpt show",
     "CKPT",
     "what one is of: run, progress, plugins, tensors",
     {{"--recipe", "", "the recipe that it was saved with"}, json},
     ckpt_command},
    {"ckpt verify",
     "CKPT",
     "compare every byte of one, or of all in a run's folder, with its checksums",
     {json, quiet},
     ckpt_command},
    {"ckpt diff", "CKPT CKPT", "what differs: progress, recipe, tensors", {}, ckpt_command},
    {"ckpt reshard",
     "CKPT DIR",
     "the same as so many files of whole tensors; none is needed to go on in another layout",
     {{"--files", "N", "files, 1"}},
     ckpt_command},
    {"ckpt prune",
     "RUN",
     "remove the oldest, while no run works in its folder",
     {{"--keep", "N", "newest that stay", true},
      {"--keep-every", "N", "those stay too whose step is a multiple"}},
     ckpt_command},
    {"tokenize",
     "TOKENIZER FILE...",
     "text, or the texts of JSON lines (*.jsonl, *.ndjson, *.json), into PREFIX.bin and PREFIX.idx, with a "
     "Hugging Face "
     "tokenizer.json",
     {{"--out", "PREFIX", "where to", true},
      {"--key", "NAME", "of JSON lines: whose value is the text; text"},
      {"--end-of-text", "TOKEN", "what ends a document"},
      {"--replace", "", "broken UTF-8 by U+FFFD rather than refuse it"},
      {"--threads", "N", "threads, as many as processors"}},
     tokenize_command},
    {"import",
     "DIR",
     "a checkpoint of the weights in a folder of Hugging Face; none is needed: model.init takes the folder "
     "as well",
     {{"--out", "CKPT", "where to", true}, weights_type},
     import_command},
    {"export",
     "CKPT",
     "a folder of Hugging Face of a checkpoint's weights, or of a run's latest",
     {{"--out", "DIR", "where to", true}, weights_type, {"--file-size", "SIZE", "of a file at most, 5GiB"}},
     export_command},
    {"convert",
     "FILE",
     "a recipe from a DeepSpeed JSON, the arguments of Megatron-LM (a script, or a text) or a torchtitan "
     "TOML; "
     "every setting is carried over, refused or listed",
     {{"--out", "RECIPE", "where to; standard output"},
      {"--model", "CONFIG", "the model, as a config.json of Hugging Face"},
      {"--ranks", "N", "how many ranks there are"}},
     convert_command},
    {"runs",
     "[FOLDER]",
     "the runs in runs/ or FOLDER: state, step, loss, tokens a second",
     {json},
     runs_command},
    {"watch",
     "RUN",
     "a run that was started elsewhere, as it goes on: curves, rates, ranks, what happened",
     {},
     watch_command},
    {"diff",
     "RUN RUN",
     "what differs: recipe, versions, plan, from which step on losses part, speed",
     {json},
     diff_command},
    {"report",
     "RUN...",
     "a run as one HTML file for any browser: curves, time, memory, traffic, what happened; several runs "
     "over each other; "
     "or, of a RECIPE, what its plan says",
     {{"--out", "FILE", "the page"}, costs},
     report_command},
    {"plugins list",
     "",
     "what can be named in a recipe",
     {{"--all", "", "those too that others hide, with their paths"}, json},
     plugins_command},
    {"plugins inspect", "NAME", "versions and options of a plugin, without running it", {}, plugins_command},
    {"plugins new", "KIND NAME [FOLDER]", "a small project that builds a plugin", {}, plugins_command},
    {"plugins check",
     "PATH",
     "open a plugin in a process of its own and test its contract: the border, and what its kind promises; "
     "a "
     "file, or a name that prun plugins list shows",
     {{"--options", "TOML",
       "options of its own, as in a recipe: 'layers = 4'; several on lines of their own"}},
     plugins_command},
    {"init",
     "",
     "write a recipe for this machine, by the answers to three questions or by options",
     {{"--model", "gpt|llama|PATH", "the kind of model, or a config.json of Hugging Face; gpt"},
      {"--data", "PATH", "a text file, a folder of them, or tokens (.bin, .idx); this folder"},
      {"--goal", "quick|train", "a run of a minute, or a model to keep; quick"},
      {"--out", "FILE", "where to, recipe.toml; never over another file"}},
     init_command},
    {"doctor",
     "[RECIPE]",
     "this machine, and what a recipe needs of it: each thing good, slow or broken, with what mends it",
     {json, quiet},
     doctor_command},
};

}  // namespace

std::vector<Command> program_commands() { return programs; }

}  // namespace prun
