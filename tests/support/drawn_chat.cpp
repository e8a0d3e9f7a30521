#include "support/drawn_chat.hpp"

#include <iterator>
#include <regex>
#include <stdexcept>

#include "support/drawn_recipe.hpp"

namespace prun::test {
namespace {

// Names their tokenizers, and for each a token that no conversation holds.
struct ChatDraw {
  const char* name;
  int between, vocab;
};
constexpr ChatDraw chats[] = {
    {"chatml", 703, 720}, {"llama3", 703, 720}, {"mistral", 0, 864}, {"gemma", 0, 864}};

std::string drawn_conversations(unsigned by, const ChatDraw& chat) {
  const auto flip = [&](unsigned period) { return by / period % 2 == 1; };
  constexpr const char* learned[] = {"answers", "last", "all"};
  const std::string between = std::to_string(chat.between), fixtures = PRUN_TEST_FIXTURES "/chat/";
  return "plugin = 'chat'\npath = '" + fixtures + "short.jsonl'\ntokenizer = '" + fixtures + chat.name +
         "'\ntemplate = '" + (flip(2) ? "own" : chat.name) + "'\nbetween = " + between +
         "\nmask_documents = true\nend_of_text = " + between + "\nlearn = '" + learned[by / 3 % 3] +
         "'\npack = " + (by / 5 % 4 == 3 ? "false" : "true") + "\ntoo_long = '" + (flip(1) ? "cut" : "drop") +
         "'\n";
}

// Takes longer sequences, which hold some conversations, and a vocabulary for these; odd lengths stay odd.
std::string for_conversations(std::string text, const ChatDraw& chat) {
  static const std::regex sizes("\nvocab = ([0-9]+)\nseq = ([0-9]+)\n");
  std::smatch drawn;
  if (!std::regex_search(text, drawn, sizes)) throw std::runtime_error("no sizes in " + text);
  const int vocab = chat.vocab + std::stoi(drawn[1]) % 2,
            seq = std::stoi(drawn[2]) == 8 ? 96 : 9 * std::stoi(drawn[2]);
  return text.replace(static_cast<std::size_t>(drawn.position(0)), static_cast<std::size_t>(drawn.length(0)),
                      "\nvocab = " + std::to_string(vocab) + "\nseq = " + std::to_string(seq) + "\n");
}

}  // namespace

std::string drawn_chat(unsigned seed, std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  const ChatDraw& chat = chats[seed % std::size(chats)];
  const unsigned by = seed / std::size(chats);
  static const std::regex formats("compute = '[a-z0-9]+'\nstate = '[a-z0-9]+'\n");
  text = for_conversations(std::regex_replace(text, formats, "compute = 'fp64'\nstate = 'fp64'\n"), chat);
  replace("plugin = 'ragged'\nvocab = 23\n", drawn_conversations(by, chat));
  if (by % 3 == 0) return drawn_adapters(seed, std::move(text));
  if (by % 3 == 1) return drawn_long(seed / 2, std::move(text));
  return by % 2 == 0 ? drawn_family(by, std::move(text)) : text;
}

}  // namespace prun::test
