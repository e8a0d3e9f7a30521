#include "inspect/first_recipe.hpp"

#include <algorithm>
#include <filesystem>

#include "assemble/assembly.hpp"
#include "assemble/automatic.hpp"
#include "assemble/one_host.hpp"
#include "base/text.hpp"
#include "prun/device.hpp"
#include "recipe/value.hpp"
#include "train/preflight.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// What follows from the goal, and from whether the device is one of a few units that are made for this.
struct Size {
  std::int64_t layers = 4, hidden = 256, heads = 4, seq = 256;
  std::int64_t steps = 150, global = 8, warmup = 10;
  double rate = 1.5e-3;
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
  std::int64_t ranks = 1, micro = 8;
  bool fast = false, recompute = false;
};

std::string quoted(const std::string& text) { return recipe::to_toml(recipe::Value(text)); }

// Lines of `key = value`, each with what it means.
class Section {
 public:
  explicit Section(const std::string& label) : text_("\n" + label + "\n") {}
  template <class Value>
  Section& line(const char* key, const Value& value, const char* meaning) {
    std::string line = detail::concat(key, " = ", value);
    line.resize(std::max<std::size_t>(line.size() + 1, 36), ' ');
    text_ += line + "# " + meaning + "\n";
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool is_tokens(const std::string& data) {
  const std::string end = fs::path(data).extension().string();
  return end == ".bin" || end == ".idx";
}

std::string model_section(const Draft& draft) {
  Section section("[model]");
  const std::string& model = draft.wish.model;
  if (model != "gpt" && model != "llama")
    return section.line("config", quoted(model), "where its shape comes from: a config.json of Hugging Face")
        .line("seq", draft.size.seq, "tokens of one sequence: how far it looks back")
        .text();
  section.line("plugin", quoted(model), "or \"gpt\", \"llama\": the kind of transformer")
      .line("layers", draft.size.layers, "transformer blocks, one after the other")
      .line("hidden", draft.size.hidden, "numbers that stand for a token between blocks")
      .line("heads", draft.size.heads, "attention heads of a block; they divide hidden");
  if (model == "llama") section.line("ffn", draft.size.hidden * 8 / 3 / 16 * 16, "width of each block's MLP");
  return section.line("seq", draft.size.seq, "tokens of one sequence: how far it looks back")
      .line("vocab", is_tokens(draft.wish.data) ? 50304 : 256,
            is_tokens(draft.wish.data) ? "at least as many as the tokenizer that made the data knows"
                                       : "a token is a byte of the text")
      .text();
}

std::string data_section(const Draft& draft) {
  const bool tokens = is_tokens(draft.wish.data);
  Section section("[data]");
  section.line("plugin", tokens ? "\"tokens\"" : "\"text\"",
               tokens ? "files of tokens, as prun tokenize writes them" : "the bytes of text files");
  section.line("path", quoted(draft.wish.data), "a file or a folder");
  if (draft.wish.goal == "train")
    section.line("validation", "0.05", "the share that is kept aside to see what was learned");
  return section.text();
}

std::string layout_sections(const Draft& draft) {
  std::string text;
  if (draft.fast)
    text += Section("[precision]")
                .line("compute", "\"bf16\"", "half the memory, and what GPUs are fast at")
                .text();
  if (draft.ranks > 1)
    text += Section("[mesh]").line("dp", draft.ranks, "ranks: one for each GPU").text() +
            Section("[[strategy]]")
                .line("plugin", "\"data\"", "each rank takes its part of the batch")
                .line("axis", "\"dp\"", "of the ranks along this axis of the mesh")
                .text();
  if (draft.recompute)
    text += Section("[[strategy]]")
                .line("plugin", "\"recompute\"", "computes some of it twice, to need less memory")
                .text();
  return text;
}

std::string text_of(const Draft& draft) {
  const Size& size = draft.size;
  const bool training = draft.wish.goal == "train";
  std::string text =
      "# Written by prun init for this machine. prun check says what is wrong with it, prun plan what it "
      "costs,\n"
      "# prun explain KEY what a key means and which others there are.\n";
  Section run("[run]");
  run.line("name", quoted(draft.wish.name), "its folder is runs/NAME")
      .line("steps", size.steps, "updates of the weights")
      .line("seed", 1, "the same seed gives the same numbers every time");
  if (training)
    run.line("save_every", size.steps / 10, "steps between two checkpoints")
        .line("keep", 2, "checkpoints that stay, the newest");
  text += run.text() + model_section(draft) + data_section(draft);
  text += Section("[batch]")
              .line("global", size.global, "sequences a step, over all ranks")
              .line("micro", draft.micro, "sequences a rank takes at once: more need more memory")
              .text();
  text += layout_sections(draft);
  text += Section("[optimizer]")
              .line("plugin", "\"adamw\"", "how gradients become updates")
              .line("lr", size.rate, "how far an update goes: too high diverges, too low learns slowly")
              .line("weight_decay", "0.1", "pulls weights towards zero")
              .line("clip", "1.0", "the largest gradient that counts in full")
              .line("schedule.kind", "\"cosine\"", "the rate falls along a cosine")
              .line("schedule.warmup", size.warmup, "steps over which it rises first")
              .line("schedule.final", "0.1", "what it ends at, as a part of lr")
              .text();
  if (training)
    text += Section("[eval]")
                .line("every", size.steps / 10, "steps between two looks at the validation data")
                .text();
  return text +
         Section("[[observer]]").line("plugin", "\"console\"", "shows the run in the terminal").text() +
         Section("[[observer]]")
             .line("plugin", "\"jsonl\"", "writes runs/NAME/log.jsonl, for prun report")
             .text();
}

Recipe parsed(const Draft& draft, PluginHost& plugins) {
  return Recipe::parse(text_of(draft), "the recipe of prun init", {}, plugins.catalog());
}

DeviceInfo look_at_device(const Draft& draft, PluginHost& plugins) {
  const Recipe recipe = choose_device(parsed(draft, plugins), plugins, {0, 1}).recipe;
  DeviceInfo info;
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  raise(device->info(&info));
  info.name = {};  // of the device, which goes
  info.unit = {};
  return info;
}

// Everything prun check asks.
void try_out(const Draft& draft, PluginHost& plugins) {
  const LocalPlace place{0, static_cast<int>(draft.ranks)};
  const Recipe recipe = choose_device(parsed(draft, plugins), plugins, place).recipe;
  plugins.set_local(place);
  const Assembly assembly(recipe, plugins);
  check_fits_one_host(assembly);
  preflight(assembly, plugins);
}

bool fits(const Draft& draft, PluginHost& plugins) {
  try {
    try_out(draft, plugins);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// No longer than the model that a config.json describes can look.
void limit_sequence(Draft& draft, PluginHost& plugins) {
  const Recipe recipe = parsed(draft, plugins);
  const std::int64_t positions = recipe.find("model.positions") ? recipe.integer("model.positions") : 0;
  if (positions > 0) draft.size.seq = std::min(draft.size.seq, positions);
}

// As near to what was meant as the microbatches of all ranks allow.
void set_batch(Draft& draft, std::int64_t micro, std::int64_t wanted) {
  draft.micro = micro;
  draft.size.global = std::max<std::int64_t>(1, wanted / (micro * draft.ranks)) * micro * draft.ranks;
}

}  // namespace

std::string first_recipe(const RecipeWish& wish, PluginHost& plugins) {
  Draft draft{wish, size_of(wish.goal, false)};
  std::error_code ignored;
  if (!fs::exists(wish.data, ignored))
    throw_error(ErrorCode::not_found, "--data: there is no ", in_quotes(wish.data),
                "; name a text file, a folder of them, or tokens (.bin, .idx)");
  const DeviceInfo device = look_at_device(draft, plugins);
  draft.fast = device.units > 0;
  draft.ranks = std::max<std::int64_t>(1, device.units);
  draft.size = size_of(wish.goal, draft.fast);
  limit_sequence(draft, plugins);
  const std::int64_t wanted = draft.size.global;
  for (const bool recompute : {false, true})
    for (const std::int64_t micro : {16, 8, 4, 2, 1}) {
      draft.recompute = recompute;
      if (micro > wanted) continue;
      set_batch(draft, micro, wanted);
      if (fits(draft, plugins)) return text_of(draft);
    }
  try_out(draft, plugins);
  return text_of(draft);
}

}  // namespace prun
