// Implements prun generate: it writes the text that a checkpoint goes on with.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/output.hpp"
#include "generate/checkpoint_use.hpp"
#include "plugin/traits.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Says what text is to the model: bytes, tokens of a tokenizer, or unknown.
class Language {
 public:
  Language(const Arguments& arguments, bool bytes, const std::string& by_data, const fs::path& checkpoint)
      : bytes_(bytes) {
    if (const auto named = arguments.path("--tokenizer"))
      tokenizer_.emplace(Tokenizer::load(*named));
    else if (!by_data.empty())
      tokenizer_.emplace(Tokenizer::load(by_data));
    else if (!bytes_)
      for (const fs::path& folder : {checkpoint, fs::absolute(checkpoint).parent_path()})
        if (!tokenizer_ && fs::exists(folder / "tokenizer.json"))
          tokenizer_.emplace(Tokenizer::load(folder / "tokenizer.json"));
  }

  std::vector<std::int32_t> encode(const std::string& text) const {
    if (tokenizer_) {
      std::vector<std::int32_t> tokens(tokenizer_->prefix().begin(), tokenizer_->prefix().end());
      for (const TokenId token : tokenizer_->encode(text)) tokens.push_back(token);
      return tokens;
    }
    if (!bytes_)
      throw_error(
          ErrorCode::bad_input,
          "there is no tokenizer.json beside the checkpoint; name one with --tokenizer FILE, or give the "
          "text as --tokens 1,2,3");
    std::vector<std::int32_t> tokens;
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const {
    if (tokenizer_) return tokenizer_->decode(tokens, false);
    std::string text;
    for (const std::int32_t token : tokens)
      if (token < 256) text += static_cast<char>(token);
    return text;
  }
  std::int32_t end() const { return tokenizer_ ? tokenizer_->end_of_text().value_or(-1) : -1; }

 private:
  const bool bytes_;
  std::optional<Tokenizer> tokenizer_;
};

// Returns the value of the option of [data] that a trait of its plugin names; it is empty where there is
// none.
std::string named_by_data(const Recipe& recipe, PluginHost& plugins, std::string_view trait) {
  const RecipeSection section = recipe.section("data");
  const std::string key(trait_of(plugins.note("data", section.plugin()), trait));
  return key.empty() ? "" : section.text(key);
}

// Returns the tokenizer that is named, or that of the data; and the data's template, or the tokenizer's own.
std::optional<chat::ChatFormat> asked_format(const Arguments& arguments, const Recipe& recipe,
                                             PluginHost& plugins) {
  if (!arguments.has("--chat")) return {};
  const std::string by_data = named_by_data(recipe, plugins, "tokenizer");
  const std::optional<fs::path> named = arguments.path("--tokenizer");
  if (by_data.empty() && !named)
    throw_error(ErrorCode::bad_input,
                "--chat needs a tokenizer and its template, and the data of this checkpoint name none; name "
                "a folder with "
                "--tokenizer");
  const std::string by = named_by_data(recipe, plugins, "template");
  return std::optional<chat::ChatFormat>(std::in_place, named.value_or(by_data), by.empty() ? "own" : by,
                                         named_by_data(recipe, plugins, "date"));
}

std::vector<std::int32_t> asked_tokens(const chat::ChatFormat& format, const std::string& text) {
  chat::Dict message;
  message.set("role", chat::Value(std::string("user")));
  message.set("content", chat::Value(text));
  chat::Conversation conversation;
  conversation.messages.push_back({chat::Value::of(std::move(message))});
  return chat::ChatEncoder(format).encode_prompt(conversation);
}

// Says whether tokens are bytes, by the data plugin's trait.
bool are_bytes(const Recipe& recipe, PluginHost& plugins) {
  const std::string data = recipe.section("data").plugin();
  return trait_of(plugins.note("data", data), "tokens") == "bytes";
}

std::vector<std::int32_t> read_tokens(const std::string& list) {
  std::vector<std::int32_t> tokens;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const double number = to_number("--tokens", list.substr(begin, end - begin), 0, INT32_MAX);
    if (number != std::floor(number))
      throw_error(ErrorCode::bad_input, "--tokens takes whole numbers, not ", number);
    tokens.push_back(static_cast<std::int32_t>(number));
    begin = end + 1;
  }
  return tokens;
}

std::string tokens_text(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += (text.empty() ? "" : ",") + std::to_string(token);
  return text;
}

// Returns all but its tokens and where it ends.
TextQuestion asked_question(const Arguments& arguments) {
  TextQuestion question;
  question.checkpoint = arguments.words[0];
  question.most = arguments.number("--max-tokens", question.most);
  question.sampling.temperature = arguments.real("--temperature", 0, 0, 100);
  question.sampling.top_p = arguments.real("--top-p", 1, 0, 1);
  question.sampling.seed = arguments.number("--seed", 1, 0);
  if (arguments.has("--average")) question.state = "average";
  return question;
}

// Returns the model's option that counts a sample's encoder tokens; it is empty where there is none.
std::string encoders_option(const Recipe& recipe, PluginHost& plugins) {
  const PluginNote& note = plugins.note("model", recipe.section("model").plugin());
  return trait_of(note, "predicts") == "spans" ? std::string(trait_of(note, "inputs")) : "";
}

// An encoder sees all of the text, and the decoder's text begins with a token that says so: sequences are as
// long as both together.
Recipe between_encoder_and_decoder(const Recipe& recipe, const std::string& option, bool ends_text,
                                   TextQuestion& question) {
  if (ends_text) question.tokens.push_back(static_cast<std::int32_t>(recipe.integer("data.span_end")));
  const auto inputs = static_cast<std::int64_t>(question.tokens.size());
  question.tokens.push_back(static_cast<std::int32_t>(recipe.integer("data.span_start")));
  return recipe.with("model." + option, std::to_string(inputs))
      .with("model.seq", std::to_string(inputs + question.most));
}

// Where nothing sets a sequence's length, it is that of the text read: the last token is not.
Recipe of_that_length(const Recipe& recipe, const TextQuestion& question) {
  const std::int64_t read = static_cast<std::int64_t>(question.tokens.size()) + question.most - 1;
  return recipe.with("model.seq", std::to_string(read));
}

// A model may compute sequences of more positions than an option says otherwise, all of them (trait
// `switches`). Then a sequence must be no longer than the text, and the text grow past that at no point.
Recipe on_one_side(const Recipe& recipe, PluginHost& plugins, const TextQuestion& question) {
  const PluginNote& note = plugins.note("model", recipe.section("model").plugin());
  const std::string option(trait_of(note, "switches"));
  if (option.empty()) return recipe;
  const std::int64_t last = recipe.integer("model." + option),
                     given = static_cast<std::int64_t>(question.tokens.size()),
                     read = given + question.most - 1;
  if (last == 0) return recipe;
  if (given <= last && read > last)
    throw_error(
        ErrorCode::unsupported, "cannot add ", question.most, " tokens to ", given,
        ": this model computes sequences of more than model.", option, " = ", last,
        " positions otherwise, and texts that grow past that are not computed anew; make --max-tokens ",
        last - given + 1, " at most");
  return of_that_length(recipe, question);
}

int generate_command(const Arguments& arguments) {
  const auto given = arguments.values.find("--tokens");
  const bool by_tokens = given != arguments.values.end();
  if (arguments.words.size() != (by_tokens ? 1u : 2u))
    throw_error(ErrorCode::bad_input,
                "prun generate CKPT takes a text in quotes or --tokens 1,2,3, one of both");
  const Opened opened = open_checkpoint(arguments, arguments.words[0], asked_rank());
  Recipe recipe = one_text(*opened.recipe, *opened.plugins);
  const std::optional<chat::ChatFormat> format = asked_format(arguments, recipe, *opened.plugins);
  if (format && by_tokens)
    throw_error(ErrorCode::bad_input, "--chat takes a text, what the user says, and no --tokens");
  const Language language(arguments, are_bytes(recipe, *opened.plugins),
                          named_by_data(recipe, *opened.plugins, "tokenizer"), arguments.words[0]);
  TextQuestion question = asked_question(arguments);
  question.tokens = format      ? asked_tokens(*format, arguments.words[1])
                    : by_tokens ? read_tokens(given->second)
                                : language.encode(arguments.words[1]);
  if (question.tokens.empty())
    throw_error(ErrorCode::bad_input, "there is no text to go on with; give one token at least");
  const std::string encoders = encoders_option(recipe, *opened.plugins);
  if (!by_tokens)
    question.end = format             ? format->end()
                   : encoders.empty() ? language.end()
                                      : static_cast<std::int32_t>(recipe.integer("data.span_end"));
  if (!encoders.empty())
    recipe = between_encoder_and_decoder(recipe, encoders, !by_tokens && !format, question);
  else if (opened.lacks_length())
    recipe = of_that_length(recipe, question);
  recipe = on_one_side(recipe, *opened.plugins, question);
  if (is_asked()) return answer_text(recipe, opened.plugins->places(), question);
  const std::vector<std::int32_t> added =
      text_of_checkpoint(recipe, *opened.plugins, question, arguments.all);
  if (by_tokens)
    std::printf("%s\n", tokens_text(added).c_str());
  else if (format)
    print_generated(format->tokenizer().decode(added) + "\n");
  else
    print_generated((encoders.empty() ? arguments.words[1] : "") + language.decode(added) + "\n");
  return 0;
}

}  // namespace

std::vector<Command> generate_verb() {
  return {
      {"generate",
       "CKPT [TEXT]",
       "what it goes on with, or what its decoder writes of a text: the likeliest token each time, or one "
       "that is drawn",
       {{"--tokens", "1,2,3", "tokens in place of a text"},
        {"--max-tokens", "N", "tokens to add"},
        {"--chat", "",
         "the text is what a user says, by the template of the data: what is added is the answer"},
        {"--temperature", "T", "draw, the more evenly the higher it is"},
        {"--top-p", "P", "draw among the likeliest that have this share together"},
        {"--seed", "N", "of what is drawn, 1"},
        {"--average", "", "by the average of its weights, which strategy average keeps"},
        {"--tokenizer", "FILE", "a tokenizer.json, in place of the one beside the checkpoint or bytes"}},
       generate_command}};
}

}  // namespace prun
