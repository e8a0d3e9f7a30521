// Implements prun data show RECIPE: it shows a sample as training gets it; and prun data render FILE.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/output.hpp"
#include "lines/text_reader.hpp"
#include "plugin/traits.hpp"
#include "prun/data.hpp"
#include "prun/error.hpp"
#include "prun/visible.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/assemble/model_program.hpp"
#include "train/loop/samples.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- rendered chats
// Shows conversations as a model reads them.

struct RenderRequest {
  std::filesystem::path chats, tokenizer;
  std::string chat_template = "own", date, learn = "answers";
  bool prompt = false;  // up to where the next answer begins
};

chat::Learned asked_to_learn(const std::string& name) {
  if (const std::optional<chat::Learned> learned = chat::learned_named(name)) return *learned;
  throw_error(ErrorCode::bad_input, "--learn takes answers, last or all, not ", in_quotes(name));
}

// A text may be there where nobody can tell what is learned of it.
void write_row(const RenderRequest& request, chat::ChatEncoder& encoder,
               const chat::Conversation& conversation, JsonWriter& row) {
  const std::string text = encoder.text_of(conversation, request.prompt);
  row.name("text").value(text);
  const chat::EncodedChat encoded = request.prompt
                                        ? chat::EncodedChat{encoder.encode_prompt(conversation), {}, {}}
                                        : encoder.encode(conversation);
  row.name("tokens").begin_array();
  for (const TokenId token : encoded.tokens) row.value(token);
  row.end_array();
  if (request.prompt) return;
  row.name("learned").begin_array();
  for (const bool learned : encoded.learned) row.value(learned ? 1 : 0);
  row.end_array();
}

// Prints a line of JSON for each conversation: its text and tokens, and of these which are learned; or why it
// is refused. Returns how many are.
std::int64_t print_rendered(const RenderRequest& request) {
  const chat::ChatFormat format(request.tokenizer, request.chat_template, request.date);
  chat::ChatEncoder encoder(format, asked_to_learn(request.learn));
  LineReader file(request.chats);
  std::int64_t refused = 0;
  std::string line;
  for (std::int64_t number = 1; file.next(line); ++number) {
    if (trim(line).empty()) continue;
    const std::string place = request.chats.string() + ":" + std::to_string(number);
    JsonWriter row;
    row.begin_object();
    try {
      write_row(request, encoder, chat::read_conversation(parse_json(line, place), place), row);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_input) throw;
      row.name("refused").value(std::string(error.what()));
      ++refused;
    }
    row.end_object();
    print_generated(row.take() + "\n");
  }
  return refused;
}

// ------------------------------------------------------------------- shown sample
// Shows one sample of a recipe's data to people.

class ShownSample {
 public:
  // Opens [data]. Throws what its plugin does, and bad_input for a sample that is not there.
  ShownSample(const Recipe& recipe, PluginHost& plugins, std::int64_t index);

  // Prints it on standard output, in colour on a terminal; elsewhere learned tokens stand between marks.
  void print(bool tokens) const;

 private:
  // Hides what data.mask hides, or data.spans cuts out, in the run's sample of the same number.
  void hide(const Recipe& recipe, PluginHost& plugins);
  std::string text_of(std::int32_t token) const;
  // Returns the token that is learned at a position, or a negative number; for the next token, whose text
  // stands there, that is known one position before.
  std::int32_t learned_at(std::size_t position) const;
  void print_text() const;
  void print_tokens() const;

  DataInfo info_;
  std::int64_t index_;
  bool bytes_ = false;     // says that tokens are those of a text
  bool in_place_ = false;  // says that a target is of its own position, and not seen there
  std::optional<Tokenizer> tokenizer_;
  std::vector<std::int32_t> tokens_, targets_;
  bool colour_ = false;
};

constexpr const char *learned_colour = "\x1b[1;32m", *end_colour = "\x1b[0m", *open_mark = "\xE2\x9F\xA6",
                     *close_mark = "\xE2\x9F\xA7";

bool shows_colour() {
  const char* const terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): before any other thread
  return ::isatty(STDOUT_FILENO) == 1 && terminal && std::string_view(terminal) != "dumb" &&
         !std::getenv("NO_COLOR");
}

ShownSample::ShownSample(const Recipe& recipe, PluginHost& plugins, std::int64_t index)
    : index_(index), colour_(shows_colour()) {
  const RecipeSection section = recipe.section("data");
  const PluginNote& note = plugins.note("data", section.plugin());
  const auto data = plugins.create<DataInterface>("data", section);
  const std::int64_t seq = text_of_sample(recipe);
  recipe::in_section(section, [&] { raise(data->open(seq, &info_)); });
  if (index < 0 || index >= info_.samples)
    throw_error(ErrorCode::bad_input, "there is no sample ", index, ": the data have ", info_.samples, " of ",
                seq, " tokens, counted from 0");
  tokens_.resize(static_cast<std::size_t>(seq));
  targets_.resize(tokens_.size());
  raise(data->read(index, tokens_.data(), targets_.data()));
  in_place_ = trait_of(note, "predicts") == "masked";
  if (recipe.number("data.mask") > 0 || recipe.number("data.spans") > 0) hide(recipe, plugins);
  bytes_ = trait_of(note, "tokens") == "bytes";
  const std::string tokenizer(trait_of(note, "tokenizer"));
  if (!tokenizer.empty()) tokenizer_.emplace(Tokenizer::load(section.text(tokenizer)));
}

void ShownSample::hide(const Recipe& recipe, PluginHost& plugins) {
  const ModelProgram model = write_model(recipe, plugins);
  const std::int64_t vocab = vocabulary(*model.program);
  if (const auto masked = MaskedTokens::of(recipe, vocab)) masked->apply(index_, tokens_, targets_);
  if (const auto spans = CorruptedSpans::of(recipe, vocab)) {
    const std::vector<std::int32_t> text = tokens_;
    tokens_.resize(static_cast<std::size_t>(recipe.integer("model.seq")));
    targets_.resize(tokens_.size());
    spans->apply(index_, text, tokens_, targets_);
  }
  in_place_ = true;
}

std::string ShownSample::text_of(std::int32_t token) const {
  if (tokenizer_) return std::string(tokenizer_->bytes(token));
  if (bytes_ && token < 256) return {static_cast<char>(token)};
  return " " + std::to_string(token);
}

std::int32_t ShownSample::learned_at(std::size_t position) const {
  if (in_place_) return position < targets_.size() ? targets_[position] : -1;
  return position > 0 ? targets_[position - 1] : -1;
}

// Learned tokens are a sample's targets. Of next tokens the last one is no token of the sample; no text shows
// what is seen in the place of the others.
void ShownSample::print_text() const {
  std::string text;
  bool learned = false;
  const auto set = [&](bool now) {
    if (now == learned) return;
    learned = now;
    text += colour_ ? (now ? learned_colour : end_colour) : (now ? open_mark : close_mark);
  };
  std::string piece;
  const auto write = [&] {
    text += visible_lines(piece);
    piece.clear();
  };
  for (std::size_t i = 0; i <= tokens_.size(); ++i) {
    const std::int32_t target = learned_at(i);
    const bool now = target >= 0;
    if (i == tokens_.size() && !now) break;
    if (now != learned) write();
    set(now);
    piece += text_of(now && (in_place_ || i == tokens_.size()) ? target : tokens_[i]);
  }
  write();
  set(false);
  print_as_it_is(text + "\n", stdout);
}

void ShownSample::print_tokens() const {
  std::printf("%8s %8s %8s  text\n", "position", "token", "learned");
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::int32_t target = learned_at(i);
    const bool learned = target >= 0;
    char line[64];
    std::snprintf(line, sizeof line, "%8zu %8d %8s  ", i, tokens_[i],
                  !learned    ? ""
                  : in_place_ ? std::to_string(target).c_str()
                              : "yes");
    std::string row = line + visible(text_of(tokens_[i]));
    if (learned && in_place_) row += " -> " + visible(text_of(target));
    print_as_it_is(colour_ && learned ? learned_colour + row + end_colour + "\n" : row + "\n", stdout);
  }
}

void ShownSample::print(bool tokens) const {
  const auto learned =
      std::count_if(targets_.begin(), targets_.end(), [](std::int32_t target) { return target >= 0; });
  std::printf("sample %lld of %lld: %zu tokens, %lld of them learned\n", static_cast<long long>(index_),
              static_cast<long long>(info_.samples), tokens_.size(), static_cast<long long>(learned));
  std::fflush(stdout);
  print_text();
  if (tokens) print_tokens();
}

// ------------------------------------------------------------------- data verb

int show_command(const Arguments& arguments) {
  const Opened opened = open_recipe(arguments, arguments.words[1]);
  const ShownSample sample(*opened.recipe, *opened.plugins, arguments.number("--sample", 0, 0));
  sample.print(!arguments.has("--text"));
  return 0;
}

int render_command(const Arguments& arguments) {
  RenderRequest request;
  request.chats = arguments.words[1];
  request.tokenizer = *arguments.path("--tokenizer");
  const auto set = [&](const char* option, std::string& to) {
    if (const auto given = arguments.values.find(option); given != arguments.values.end()) to = given->second;
  };
  set("--template", request.chat_template);
  set("--date", request.date);
  set("--learn", request.learn);
  request.prompt = arguments.has("--prompt");
  if (const std::int64_t refused = print_rendered(request); refused > 0)
    throw_error(ErrorCode::bad_input, refused, " conversations of ", request.chats.string(),
                " are refused, for the reasons above");
  return 0;
}

}  // namespace

std::vector<Command> data_verb() {
  return {{"data render",
           "FILE",
           "conversations as a model reads them, in JSON: text, tokens, and which of them are learned",
           {{"--tokenizer", "FOLDER", "of the model, with its tokenizer.json", true},
            {"--template", "NAME|FILE", "chatml, llama3, mistral, gemma, or a file; own, the tokenizer's"},
            {"--date", "YEAR-MONTH-DAY", "the day that templates get for today"},
            {"--learn", "answers|last|all", "what is learned; answers"},
            {"--prompt", "", "up to where the model writes the next answer"}},
           render_command},
          {"data show",
           "RECIPE",
           "a sample of its data: the tokens, their text, and which of them are learned",
           {{"--sample", "N", "which one, in the order in which they lie; 0"},
            {"--text", "", "the text alone, without a line for each token"}},
           show_command}};
}

}  // namespace prun
