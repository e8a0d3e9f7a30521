#include "init/first_recipe.hpp"

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "estimate/known_costs.hpp"
#include "init/recipe_trial.hpp"
#include "prun/device.hpp"
#include "recipe/toml_writer.hpp"
#include "search/tune.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr const char* what_to_name = "name a text file, a folder of them, or tokens (.bin, .idx)";

// Holds sizes that follow from the goal, and from whether the device is one of a few units that are made for
// this.
struct Size {
  std::int64_t layers = 4, hidden = 256, heads = 4, seq = 256;
  std::int64_t steps = 150, global = 8, warmup = 10;
  double rate = 8e-4;
};

Size size_of(const std::string& goal, bool fast) {
  if (goal == "quick") return {};
  if (goal != "train")
    throw_error(ErrorCode::bad_input, "--goal takes quick or train, not ", in_quotes(goal));
  if (!fast) return {6, 384, 6, 256, 2000, 32, 100, 1e-3};
  return {12, 768, 12, 1024, 5000, 256, 200, 6e-4};
}

struct Draft {
  RecipeWish wish;
  Size size;
  std::int64_t ranks = 1, micro = 8;  // micro 0: it is left out
  bool fast = false, recompute = false;
  // Says that its layout is left out, for the search of prun tune.
  bool open = false;
};

bool is_tokens(const std::string& data) {
  const std::string end = fs::path(data).extension().string();
  return end == ".bin" || end == ".idx";
}

void write_model(recipe::TomlWriter& out, const Draft& draft) {
  const std::string& model = draft.wish.model;
  const bool tokens = is_tokens(draft.wish.data);
  out.table("model");
  const auto write_seq = [&] {
    out.value("seq", draft.size.seq, "tokens of one sequence: how far it looks back");
  };
  if (model != "gpt" && model != "llama") {
    out.value("config", model, "where its shape comes from: a config.json of Hugging Face");
    return write_seq();
  }
  out.value("plugin", model, "or \"gpt\", \"llama\": the kind of transformer")
      .value("layers", draft.size.layers, "transformer blocks, one after the other")
      .value("hidden", draft.size.hidden, "numbers that stand for a token between blocks")
      .value("heads", draft.size.heads, "attention heads of a block; they divide hidden");
  if (model == "llama") out.value("ffn", draft.size.hidden * 8 / 3 / 16 * 16, "width of each block's MLP");
  write_seq();
  out.value("vocab", tokens ? 50304 : 256,
            tokens ? "at least as many as the tokenizer that made the data knows"
                   : "a token is a byte of the text");
}

void write_data(recipe::TomlWriter& out, const Draft& draft) {
  const bool tokens = is_tokens(draft.wish.data);
  out.table("data").value(
      "plugin", std::string(tokens ? "tokens" : "text"),
      tokens ? "files of tokens, as prun tokenize writes them" : "the bytes of text files");
  out.value("path", draft.wish.data, "a file or a folder");
  if (draft.wish.goal == "train")
    out.value("validation", 0.05, "the share that is kept aside to see what was learned");
}

// "strategy.0.stage=1" is the key `stage` of the first table of strategies.
void write_chosen(recipe::TomlWriter& out, const Recipe& recipe, const std::vector<std::string>& sets) {
  std::string table;
  const auto open = [&](const std::string& name, bool item) {
    if (table != name) item ? out.item("strategy") : out.table(name);
    table = name;
  };
  for (const std::string& set : sets) {
    const std::string path = set.substr(0, set.find('='));
    const std::size_t dot = path.rfind('.');
    const std::string section = path.substr(0, dot);
    if (section != "mesh" && !section.starts_with("strategy.")) continue;
    open(section, section != "mesh");
    out.value(path.substr(dot + 1), *recipe.entry(path).value, "the quickest of those that were planned");
  }
}

void write_layout(recipe::TomlWriter& out, const Draft& draft) {
  if (draft.fast)
    out.table("precision").value("compute", "bf16", "half the memory, and what GPUs are fast at");
  if (draft.open) return;
  if (draft.ranks > 1)
    out.table("mesh")
        .value("dp", draft.ranks,
               draft.fast ? "ranks: one for each GPU" : "ranks: processes that share the cores")
        .item("strategy")
        .value("plugin", "data", "each rank takes its part of the batch")
        .value("axis", "dp", "of the ranks along this axis of the mesh");
  if (draft.recompute)
    out.item("strategy").value("plugin", "recompute", "computes some of it twice, to need less memory");
}

void write_run(recipe::TomlWriter& out, const Draft& draft) {
  const Size& size = draft.size;
  out.table("run")
      .value("name", draft.wish.name, "its folder is runs/NAME")
      .value("steps", size.steps, "updates of the weights")
      .value("seed", 1, "the same seed gives the same numbers every time");
  if (draft.wish.goal == "train")
    out.value("save_every", size.steps / 10, "steps between two checkpoints")
        .value("keep", 2, "checkpoints that stay, the newest");
}

void write_training(recipe::TomlWriter& out, const Draft& draft) {
  const Size& size = draft.size;
  out.table("optimizer")
      .value("plugin", "adamw", "how gradients become updates")
      .value("lr", size.rate, "how far an update goes: too high diverges, too low learns slowly")
      .value("weight_decay", 0.1, "pulls weights towards zero")
      .value("clip", 1.0, "the largest gradient that counts in full")
      .value("schedule.kind", "cosine", "the rate falls along a cosine")
      .value("schedule.warmup", size.warmup, "steps over which it rises first")
      .value("schedule.final", 0.1, "what it ends at, as a part of lr");
  if (draft.wish.goal == "train")
    out.table("eval").value("every", size.steps / 10, "steps between two looks at the validation data");
}

std::string text_of(const Draft& draft) {
  recipe::TomlWriter out;
  out.comment(
      "Written by prun init for this machine. prun check says what is wrong with it, prun plan what it "
      "costs,\nprun explain KEY what a key means and which others there are.");
  write_run(out, draft);
  write_model(out, draft);
  write_data(out, draft);
  out.table("batch").value("global", draft.size.global, "sequences a step, over all ranks");
  if (draft.micro > 0)
    out.value("micro", draft.micro, "sequences a rank takes at once: more need more memory");
  write_layout(out, draft);
  write_training(out, draft);
  out.item("observer").value("plugin", "console", "shows the run in the terminal");
  return out.text();
}

// Keeps the sequence within what the model that a config.json describes can see.
void limit_sequence(Draft& draft, PluginHost& plugins) {
  const Recipe recipe = parsed_recipe(text_of(draft), plugins);
  const std::int64_t positions = recipe.find("model.positions") ? recipe.integer("model.positions") : 0;
  if (positions > 0) draft.size.seq = std::min(draft.size.seq, positions);
}

// Sets the batch as near to the wanted one as the microbatches of all ranks allow.
void set_batch(Draft& draft, std::int64_t micro, std::int64_t wanted) {
  draft.micro = micro;
  draft.size.global = std::max<std::int64_t>(1, wanted / (micro * draft.ranks)) * micro * draft.ranks;
}

// Returns the planner's layout, where this machine's costs are known; no other layout is as good as a planned
// one.
std::optional<std::string> laid_out(Draft draft, PluginHost& plugins, std::int64_t wanted) {
  try {
    set_batch(draft, 1, wanted);
    draft.micro = 0;
    draft.open = true;
    const Recipe recipe = choose_device(parsed_recipe(text_of(draft), plugins), plugins, {0, 1}).recipe;
    TuneRequest request;
    request.wish.ranks = draft.ranks;
    request.why = false;
    const TuneResult result = tune(recipe, plugins, known_costs({}).table, request);
    const std::vector<std::string>& sets = result.best.front().sets;
    const Recipe tuned = Recipe::parse(text_of(draft), "the recipe of prun init", sets, plugins.catalog());
    draft.micro = tuned.integer("batch.micro");
    recipe::TomlWriter layout;
    write_chosen(layout, tuned, sets);
    const std::string text = text_of(draft) + "\n" + layout.text();
    try_recipe(text, draft.ranks, plugins);
    return text;
  } catch (const Error&) {
    return {};  // there is no cost table, or nothing fits: the usual way says why
  }
}

std::string drafted(const RecipeWish& wish, PluginHost& plugins) {
  Draft draft{wish, size_of(wish.goal, false)};
  std::error_code ignored;
  if (!fs::exists(wish.data, ignored))
    throw_error(ErrorCode::not_found, "--data: there is no ", in_quotes(wish.data), "; ", what_to_name);
  const DeviceInfo device = device_of_recipe(text_of(draft), plugins);
  draft.fast = device.units > 0;
  draft.ranks = wish.ranks > 0 ? wish.ranks : std::max<std::int64_t>(1, device.units);
  draft.size = size_of(wish.goal, draft.fast);
  limit_sequence(draft, plugins);
  const std::int64_t wanted = draft.size.global;
  if (const std::optional<std::string> text = laid_out(draft, plugins, wanted)) return *text;
  for (const bool recompute : {false, true})
    for (const std::int64_t micro : {16, 8, 4, 2, 1}) {
      draft.recompute = recompute;
      if (micro > wanted) continue;
      set_batch(draft, micro, wanted);
      if (recipe_fits(text_of(draft), draft.ranks, plugins)) return text_of(draft);
    }
  try_recipe(text_of(draft), draft.ranks, plugins);
  return text_of(draft);
}

}  // namespace

// The user has no recipe yet: what the data plugin says of its options is left out.
std::string first_recipe(const RecipeWish& wish, PluginHost& plugins) {
  try {
    return drafted(wish, plugins);
  } catch (const Error& error) {
    const std::string_view said = first_line(error.what());
    constexpr std::string_view plugin = "data plugin '", behind = "': ";
    const std::size_t name = said.find(plugin), at = said.find(behind, name + plugin.size());
    if (name == std::string_view::npos || at == std::string_view::npos) throw;
    const std::string_view fact = said.substr(at + behind.size());
    throw_error(error.code(), "cannot train on ", wish.data == "." ? "this folder" : "--data", ": ",
                fact.substr(0, fact.find("; ")), "; ", what_to_name, " with --data");
  }
}

}  // namespace prun
