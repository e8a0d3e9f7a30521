#include "init/first_recipe.hpp"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "cli/preflight.hpp"
#include "estimate/costs_file.hpp"
#include "lines/text_reader.hpp"
#include "prun/device.hpp"
#include "recipe/toml_writer.hpp"
#include "search/tune.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- recipe trial
// Tries a recipe that is being written on this machine.

Recipe parsed_recipe(const std::string& text, PluginHost& plugins) {
  return Recipe::parse(text, "the recipe of prun init", {}, plugins.catalog());
}

// Describes the device that the recipe chooses; strings that would be gone with the device are left out.
DeviceInfo device_of_recipe(const std::string& text, PluginHost& plugins) {
  const Recipe recipe = choose_device(parsed_recipe(text, plugins), plugins, {0, 1}).recipe;
  DeviceInfo info;
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  raise(device->info(&info));
  info.name = {};
  info.unit = {};
  return info;
}

// Checks all that prun check does, for `ranks` ranks of this host. Throws what that does.
void try_recipe(const std::string& text, std::int64_t ranks, PluginHost& plugins) {
  const LocalPlace place{0, static_cast<int>(ranks), true, true};
  const Recipe recipe = choose_device(parsed_recipe(text, plugins), plugins, place).recipe;
  plugins.set_local(place);
  const Assembly assembly(recipe, plugins);
  check_fits_one_host(assembly);
  preflight(assembly, plugins);
}

bool recipe_fits(const std::string& text, std::int64_t ranks, PluginHost& plugins) {
  try {
    try_recipe(text, ranks, plugins);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// ------------------------------------------------------------------- first recipe

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
  RecipeRequest request;
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
  const std::string& model = draft.request.model;
  const bool tokens = is_tokens(draft.request.data);
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
  const bool tokens = is_tokens(draft.request.data);
  out.table("data").value(
      "plugin", std::string(tokens ? "tokens" : "text"),
      tokens ? "files of tokens, as prun tokenize writes them" : "the bytes of text files");
  out.value("path", draft.request.data, "a file or a folder");
  if (draft.request.goal == "train")
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
      .value("name", draft.request.name, "its folder is runs/NAME")
      .value("steps", size.steps, "updates of the weights")
      .value("seed", 1, "the same seed gives the same numbers every time");
  if (draft.request.goal == "train")
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
  if (draft.request.goal == "train")
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
    request.scope.ranks = draft.ranks;
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

std::string drafted(const RecipeRequest& request, PluginHost& plugins) {
  Draft draft{request, size_of(request.goal, false)};
  std::error_code ignored;
  if (!fs::exists(request.data, ignored))
    throw_error(ErrorCode::not_found, "--data: there is no ", in_quotes(request.data), "; ", what_to_name);
  const DeviceInfo device = device_of_recipe(text_of(draft), plugins);
  draft.fast = device.units > 0;
  draft.ranks = request.ranks > 0 ? request.ranks : std::max<std::int64_t>(1, device.units);
  draft.size = size_of(request.goal, draft.fast);
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
std::string first_recipe(const RecipeRequest& request, PluginHost& plugins) {
  try {
    return drafted(request, plugins);
  } catch (const Error& error) {
    const std::string_view said = first_line(error.what());
    constexpr std::string_view plugin = "data plugin '", behind = "': ";
    const std::size_t name = said.find(plugin), at = said.find(behind, name + plugin.size());
    if (name == std::string_view::npos || at == std::string_view::npos) throw;
    const std::string_view fact = said.substr(at + behind.size());
    throw_error(error.code(), "cannot train on ", request.data == "." ? "this folder" : "--data", ": ",
                fact.substr(0, fact.find("; ")), "; ", what_to_name, " with --data");
  }
}

namespace {

// ------------------------------------------------------------------- finetune recipe

namespace fs = std::filesystem;

enum class Keeping : std::uint8_t { plain, recompute, parts, host };

struct FinetuneDraft {
  FinetuneRequest request;
  std::int64_t seq = 1024, between = 0, ranks = 1, micro = 1, global = 16;
  Keeping memory = Keeping::plain;
  bool fast = false;
  double tokens = 0;  // of all conversations, about
};

constexpr double epochs = 2;

// Returns the steps over which the rate rises: a twentieth of the run, whose conversations share samples.
std::int64_t warmup_of(const FinetuneDraft& draft) {
  const double samples = std::max(1.0, draft.tokens / static_cast<double>(draft.seq));
  const double steps = epochs * samples / static_cast<double>(draft.global);
  return static_cast<std::int64_t>(std::clamp(steps / 20, 1.0, 100.0));
}

// Holds what the first conversations tell about all.
struct FirstChats {
  std::int64_t longest = 0, conversations = 0, tokens = 0;
  std::vector<bool> holds;  // by token
  std::int64_t all = 0;     // conversations of all files

  double tokens_of_all() const {
    return static_cast<double>(tokens) * static_cast<double>(all) / static_cast<double>(conversations);
  }
};

constexpr std::int64_t looked_at = 2000;

void look_at(const std::string& line, const std::string& place, chat::ChatEncoder& encoder,
             FirstChats& first) {
  ++first.all;
  if (first.conversations == looked_at) return;
  ++first.conversations;
  const chat::EncodedChat encoded = encoder.encode(chat::read_conversation(parse_json(line, place), place));
  first.longest = std::max(first.longest, static_cast<std::int64_t>(encoded.tokens.size()));
  first.tokens += static_cast<std::int64_t>(encoded.tokens.size());
  for (const TokenId token : encoded.tokens) first.holds[static_cast<std::size_t>(token)] = true;
}

FirstChats look_at_chats(const FinetuneRequest& request, const chat::ChatFormat& format) {
  const std::vector<fs::path> files = json_line_files(request.data);
  if (files.empty())
    throw_error(ErrorCode::not_found, "--data: there is neither a file ", in_quotes(request.data.string()),
                " nor a folder of that name with files of conversations (*.jsonl, *.ndjson); name one with a "
                "conversation a line");
  FirstChats first;
  first.holds.resize(static_cast<std::size_t>(format.tokenizer().size()));
  chat::ChatEncoder encoder(format);
  for (const fs::path& path : files) {
    LineReader file(path);
    std::string line;
    for (std::int64_t number = 1; file.next(line); ++number)
      if (!trim(line).empty()) look_at(line, path.string() + ":" + std::to_string(number), encoder, first);
  }
  if (first.longest == 0) throw_error(ErrorCode::bad_input, request.data.string(), ": holds no conversation");
  return first;
}

// Returns a special token that no conversation holds.
std::int64_t token_between(const chat::ChatFormat& format, const FirstChats& first) {
  for (const char* text : {"<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "<pad>", "[PAD]", "<unk>"})
    if (const std::optional<TokenId> token = format.tokenizer().find_added(text))
      if (!first.holds[static_cast<std::size_t>(*token)]) return *token;
  throw_error(
      ErrorCode::bad_input, "the tokenizer has no special token that could stand between conversations, of ",
      "<|endoftext|>, <|end_of_text|>, <eos>, </s>, <pad>, [PAD] and <unk>; write the recipe by hand, with "
      "data.between");
}

void write_strategies(recipe::TomlWriter& out, const FinetuneDraft& draft) {
  if (draft.fast) {
    out.table("precision").value("compute", "bf16", "half the memory, and what GPUs are fast at");
    out.value("master", "split",
              "weights that are updated: the other half of 32 bits beside those that compute");
  }
  if (draft.request.lora)
    out.item("strategy")
        .value("plugin", "lora",
               "small matrices beside each weight are trained, and the weights stay as they are")
        .value("rank", std::int64_t{16}, "their width")
        .value("alpha", 32.0, "what they add is multiplied by alpha / rank");
  if (draft.ranks > 1)
    out.table("mesh")
        .value("dp", draft.ranks,
               draft.fast ? "ranks: one for each GPU" : "ranks: processes that share the cores")
        .item("strategy")
        .value("plugin", "data", "each rank takes its part of the batch")
        .value("axis", "dp", "of the ranks along this axis of the mesh");
  if (draft.ranks > 1 && draft.memory >= Keeping::parts)
    out.item("strategy")
        .value("plugin", "zero", "each rank keeps a part of weights, gradients and state")
        .value("axis", "dp", "of the ranks along this axis of the mesh")
        .value("stage", std::int64_t{3}, "1: state in parts; 2: gradients too; 3: weights too");
  if (draft.memory >= Keeping::recompute)
    out.item("strategy").value("plugin", "recompute", "computes some of it twice, to need less memory");
  if (draft.memory == Keeping::host)
    out.item("strategy")
        .value("plugin", "offload", "what does not fit on the device lies in the host's memory")
        .value("optimizer", "host", "state, and updates on the host's cores")
        .value("parameters", "host", "weights, a layer at a time on the device")
        .value("gradients", "host", "gradients")
        .value("activations", "host", "what layers keep for backward");
}

void write_data(recipe::TomlWriter& out, const FinetuneDraft& draft) {
  out.table("data")
      .value("plugin", "chat", "conversations, of which the assistant's answers are learned")
      .value("path", draft.request.data.string(), "a conversation a line")
      .value("tokenizer", draft.request.from.string(), "the folder of its tokenizer.json")
      .value("template", draft.request.chat_template,
             "own: the tokenizer's; or chatml, llama3, mistral, gemma, or a file")
      .value("between", draft.between, "the token between two conversations that share a sample")
      .value("mask_documents", true, "attention stops between conversations")
      .value("end_of_text", draft.between, "the same token");
}

std::string text_of_finetune(const FinetuneDraft& draft) {
  recipe::TomlWriter out;
  out.comment(
      "Written by prun init for this machine. prun data show says what is learned of the data, prun plan "
      "what it\n"
      "costs, prun explain KEY what a key means and which others there are.");
  out.table("run")
      .value("name", draft.request.name, "its folder is runs/NAME")
      .value("steps", std::int64_t{1000000}, "updates of the weights at most")
      .value("epochs", epochs, "times that all conversations are gone through")
      .value("seed", std::int64_t{1}, "the same seed gives the same numbers every time")
      .value("save_minutes", 30.0, "minutes between two checkpoints; one more comes at the end")
      .value("keep", std::int64_t{2}, "checkpoints that stay, the newest");
  out.table("model")
      .value("init", draft.request.from.string(), "the model to go on from: gives shape and weights")
      .value("seq", draft.seq, "tokens of one sequence, which may hold several conversations");
  write_data(out, draft);
  out.table("batch")
      .value("global", draft.global, "sequences a step, over all ranks")
      .value("micro", draft.micro, "sequences a rank takes at once: more need more memory");
  if (draft.memory == Keeping::host)
    out.value("order", "breadth_first",
              "all microbatches through a layer before the next one: each layer comes once a step");
  write_strategies(out, draft);
  out.table("optimizer")
      .value("plugin", "adamw", "how gradients become updates")
      .value("lr", draft.request.lora ? 2e-4 : 1e-5,
             "how far an update goes: too high forgets, too low learns slowly")
      .value("weight_decay", 0.0, "pulls weights towards zero")
      .value("clip", 1.0, "the largest gradient that counts in full")
      .value("schedule.kind", "cosine", "the rate falls along a cosine")
      .value("schedule.warmup", warmup_of(draft), "steps over which it rises first: a twentieth of the run")
      .value("schedule.final", 0.1, "what it ends at, as a part of lr");
  out.item("observer").value("plugin", "console", "shows the run in the terminal");
  return out.text();
}

// Chooses a length that fits the longest conversation, as far as the model goes; without a user's request it
// is at most 4096.
void choose_length(FinetuneDraft& draft, std::int64_t longest, PluginHost& plugins) {
  constexpr std::int64_t least = 128, most = 4096;
  draft.seq =
      std::clamp(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(longest))), least, most);
  const Recipe recipe = parsed_recipe(text_of_finetune(draft), plugins);
  const std::int64_t positions = recipe.find("model.positions") ? recipe.integer("model.positions") : 0;
  if (positions > 0) draft.seq = std::min(draft.seq, positions);
}

}  // namespace

std::string finetune_recipe(const FinetuneRequest& request, PluginHost& plugins) {
  FinetuneDraft draft{request};
  const chat::ChatFormat format(request.from, request.chat_template);
  const FirstChats first = look_at_chats(request, format);
  draft.between = token_between(format, first);
  draft.tokens = first.tokens_of_all();
  choose_length(draft, first.longest, plugins);
  const DeviceInfo device = device_of_recipe(text_of_finetune(draft), plugins);
  draft.fast = device.units > 0;
  draft.ranks = request.ranks > 0 ? request.ranks : std::max<std::int64_t>(1, device.units);
  const std::int64_t wanted = draft.global;
  for (const Keeping memory : {Keeping::plain, Keeping::recompute, Keeping::parts, Keeping::host})
    for (const std::int64_t micro : {8, 4, 2, 1}) {
      if (memory == Keeping::parts && draft.ranks == 1) continue;
      draft.memory = memory;
      draft.micro = micro;
      draft.global = std::max<std::int64_t>(1, wanted / (micro * draft.ranks)) * micro * draft.ranks;
      if (recipe_fits(text_of_finetune(draft), draft.ranks, plugins)) return text_of_finetune(draft);
    }
  try_recipe(text_of_finetune(draft), draft.ranks, plugins);
  return text_of_finetune(draft);
}

}  // namespace prun
