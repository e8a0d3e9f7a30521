// prun: trains what a recipe describes.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "plugin/in_plugin.hpp"
#include "prun/plugin.hpp"

namespace {

constexpr const char* help = R"(prun trains transformer models from a TOML recipe.

  prun RECIPE                  train
  prun check RECIPE            say everything that is wrong with it, run nothing
  prun plan RECIPE             batch, ranks, traffic, memory, FLOPs and predicted step time before anything
                               runs (--json; --costs FILE; --program: the program as
                               strategies left it; --program --lowered: as the device runs it)
  prun verify RECIPE           train it beside its one-rank equivalent and compare everything
                               (--steps N; --as-is: in the recipe's precision, not in fp64)
  prun trace RECIPE            what every queue does when, as a trace for ui.perfetto.dev; ranks are threads,
                               or processes where the device wants that
                               (--steps N; --out FILE; --simulated: from the cost table; --costs FILE)
  prun bench kernels [RECIPE]  measure this machine's kernels, a recipe's own with its exchanges too, into the
                               cost table
                               (--no-grid: the recipe's alone)
  prun bench comm [RECIPE]     measure exchanges between ranks (--ranks N), of a recipe's device and comm plugin
                               between its ranks; both: --out FILE
  prun bench zero RECIPE       train it with stages 0 to 3 of the strategy zero in turn and show what each costs and
                               saves (--steps N; --stage N: that one alone; --json; --out FILE.json or FILE.csv)
  prun bench offload RECIPE    the same of what strategy offload keeps in the host's memory: none, optimizer, all
                               (--setting NAME: that one alone)
  prun eval CKPT               its loss on the validation data, without training: a checkpoint, or the latest in a
                               run's folder, in the layout of its recipe or in any other that --set gives it
                               (--batches N; --json)
  prun generate CKPT "TEXT"    what it goes on with: the likeliest token each time, or drawn by --temperature T
                               and --top-p P (--seed N); text by the tokenizer.json beside it or by
                               --tokenizer FILE, bytes where they are what it was trained on
                               (--tokens 1,2,3 in place of TEXT; --max-tokens N)
  prun ckpt ls RUN             the checkpoints in the folder of a run
  prun ckpt show CKPT          what one is of: run, progress, plugins, tensors (--recipe: the recipe)
  prun ckpt verify CKPT        compare every byte of one, or of all in a run's folder, with its checksums
  prun ckpt diff CKPT CKPT     what differs: progress, recipe, tensors
  prun ckpt reshard CKPT DIR   the same as so many files of whole tensors (--files N); none is needed to go on
                               in another layout
  prun ckpt prune RUN          remove the oldest (--keep N; --keep-every N)
  prun tokenize TOKENIZER FILE... --out PREFIX
                               text, or the texts of JSON lines (*.jsonl, *.ndjson, *.json), into PREFIX.bin and .idx,
                               with a Hugging Face tokenizer.json (--key NAME, text: whose value is the text;
                               --end-of-text TOKEN; --replace: broken UTF-8; --threads N)
  prun import DIR --out CKPT   a checkpoint of the weights in a folder of Hugging Face; none is needed: model.init
                               takes the folder as well (--type bf16 or fp32)
  prun export CKPT --out DIR   a folder of Hugging Face of a checkpoint's weights, or of a run's latest
                               (--type bf16 or fp32; --file-size SIZE: of a file at most, 5GiB)
  prun runs [FOLDER]           the runs in runs/ or FOLDER: state, step, loss, tokens a second (--json)
  prun watch RUN               a run that was started elsewhere, as it goes on: curves, rates, ranks, what happened
  prun diff RUN RUN            what differs: recipe, versions, plan, from which step on losses part, speed
  prun report RUN...           a run as one HTML file for any browser: curves, time, memory, traffic, what happened;
                               several runs over each other; or, of a RECIPE, what its plan says
                               (--out FILE; --costs FILE)
  prun explain KEY [RECIPE]    what a key means, e.g. model.heads
  prun plugins list            what can be named in a recipe (--json)
  prun plugins inspect NAME    versions and options of a plugin, without running it
  prun plugins new KIND NAME   a small project that builds a plugin
  prun plugins check PATH      open a plugin in a process of its own and test its contract
  prun reference               all keys as Markdown

  --set KEY=VALUE              change a value of the recipe, e.g. --set optimizer.lr=3e-4
  --plugin-path FOLDER         look for plugins there first

Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU end a run after its step: it saves and prints the command that resumes.

Exit codes: 0 done, 1 a defect of prun or, for verify, diff and ckpt diff, a difference, 2 bad input or too low a limit of the
system, 10 a rank died, 11 a rank hangs, 12 communication, 13 storage, 15 diverged, 128 + the signal's number when
stopped by one and saved (130 SIGINT, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1, 152 SIGXCPU).
)";

int dispatch(const prun::Arguments& arguments) {
  const std::string& verb = arguments.verb;
  if (verb == "run") return prun::run_command(arguments);
  if (verb == "check") return prun::check_command(arguments);
  if (verb == "plan") return prun::plan_command(arguments);
  if (verb == "verify") return prun::verify_command(arguments);
  if (verb == "trace") return prun::trace_command(arguments);
  if (verb == "bench") return prun::bench_command(arguments);
  if (verb == "eval") return prun::eval_command(arguments);
  if (verb == "generate") return prun::generate_command(arguments);
  if (verb == "ckpt") return prun::ckpt_command(arguments);
  if (verb == "tokenize") return prun::tokenize_command(arguments);
  if (verb == "import") return prun::import_command(arguments);
  if (verb == "export") return prun::export_command(arguments);
  if (verb == "explain") return prun::explain_command(arguments);
  if (verb == "reference") return prun::reference_command(arguments);
  if (verb == "report") return prun::report_command(arguments);
  if (verb == "runs") return prun::runs_command(arguments);
  if (verb == "watch") return prun::watch_command(arguments);
  if (verb == "diff") return prun::diff_command(arguments);
  if (verb == "plugins") return prun::plugins_command(arguments);
  if (verb == "version") {
    std::printf("prun %s (plugin epoch %u)\n", std::string(prun::sdk_version).c_str(), prun::plugin_epoch);
    return 0;
  }
  std::fputs(help, stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const prun::UntimelyEndWatch watch;
  // A file size limit shows up as an error of the write, not as our death.
  std::signal(SIGXFSZ, SIG_IGN);
  prun::prepare_output();
  try {
    const int code = dispatch(prun::parse_arguments(argc, argv));
    prun::finish_output();
    return code;
  } catch (const prun::Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "prun: %s\n", error.what());
    return prun::exit_code(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "prun: %s\n", prun::out_of_memory);
    return prun::exit_code(prun::ErrorCode::unsupported);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "prun: unexpected: %s\n", error.what());
    return 1;
  }
}
