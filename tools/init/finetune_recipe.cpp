#include "init/finetune_recipe.hpp"

#include <algorithm>
#include <bit>

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "init/recipe_trial.hpp"
#include "lines/text_reader.hpp"
#include "prun/device.hpp"
#include "recipe/toml_writer.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

enum class Keeping : std::uint8_t { plain, recompute, parts, host };

struct FinetuneDraft {
  FinetuneWish wish;
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

FirstChats look_at_chats(const FinetuneWish& wish, const chat::ChatFormat& format) {
  const std::vector<fs::path> files = json_line_files(wish.data);
  if (files.empty())
    throw_error(ErrorCode::not_found, "--data: there is neither a file ", in_quotes(wish.data.string()),
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
  if (first.longest == 0) throw_error(ErrorCode::bad_input, wish.data.string(), ": holds no conversation");
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
  if (draft.wish.lora)
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
      .value("path", draft.wish.data.string(), "a conversation a line")
      .value("tokenizer", draft.wish.from.string(), "the folder of its tokenizer.json")
      .value("template", draft.wish.chat_template,
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
      .value("name", draft.wish.name, "its folder is runs/NAME")
      .value("steps", std::int64_t{1000000}, "updates of the weights at most")
      .value("epochs", epochs, "times that all conversations are gone through")
      .value("seed", std::int64_t{1}, "the same seed gives the same numbers every time")
      .value("save_minutes", 30.0, "minutes between two checkpoints; one more comes at the end")
      .value("keep", std::int64_t{2}, "checkpoints that stay, the newest");
  out.table("model")
      .value("init", draft.wish.from.string(), "the model to go on from: gives shape and weights")
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
      .value("lr", draft.wish.lora ? 2e-4 : 1e-5,
             "how far an update goes: too high forgets, too low learns slowly")
      .value("weight_decay", 0.0, "pulls weights towards zero")
      .value("clip", 1.0, "the largest gradient that counts in full")
      .value("schedule.kind", "cosine", "the rate falls along a cosine")
      .value("schedule.warmup", warmup_of(draft), "steps over which it rises first: a twentieth of the run")
      .value("schedule.final", 0.1, "what it ends at, as a part of lr");
  out.item("observer").value("plugin", "console", "shows the run in the terminal");
  return out.text();
}

// Chooses a length that fits the longest conversation, as far as the model goes; without a user's wish it is
// at most 4096.
void choose_length(FinetuneDraft& draft, std::int64_t longest, PluginHost& plugins) {
  constexpr std::int64_t least = 128, most = 4096;
  draft.seq =
      std::clamp(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(longest))), least, most);
  const Recipe recipe = parsed_recipe(text_of_finetune(draft), plugins);
  const std::int64_t positions = recipe.find("model.positions") ? recipe.integer("model.positions") : 0;
  if (positions > 0) draft.seq = std::min(draft.seq, positions);
}

}  // namespace

std::string finetune_recipe(const FinetuneWish& wish, PluginHost& plugins) {
  FinetuneDraft draft{wish};
  const chat::ChatFormat format(wish.from, wish.chat_template);
  const FirstChats first = look_at_chats(wish, format);
  draft.between = token_between(format, first);
  draft.tokens = first.tokens_of_all();
  choose_length(draft, first.longest, plugins);
  const DeviceInfo device = device_of_recipe(text_of_finetune(draft), plugins);
  draft.fast = device.units > 0;
  draft.ranks = wish.ranks > 0 ? wish.ranks : std::max<std::int64_t>(1, device.units);
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
