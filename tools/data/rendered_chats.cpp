#include "data/rendered_chats.hpp"

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "cli/output.hpp"
#include "lines/text_reader.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

chat::Learned asked_to_learn(const std::string& name) {
  if (const std::optional<chat::Learned> learned = chat::learned_named(name)) return *learned;
  throw_error(ErrorCode::bad_input, "--learn takes answers, last or all, not ", in_quotes(name));
}

// A text may be there where nobody can tell what is learned of it.
void write_row(const RenderWish& wish, chat::ChatEncoder& encoder, const chat::Conversation& conversation,
               JsonWriter& row) {
  const std::string text = encoder.text_of(conversation, wish.prompt);
  row.name("text").value(text);
  const chat::EncodedChat encoded = wish.prompt
                                        ? chat::EncodedChat{encoder.encode_prompt(conversation), {}, {}}
                                        : encoder.encode(conversation);
  row.name("tokens").begin_array();
  for (const TokenId token : encoded.tokens) row.value(token);
  row.end_array();
  if (wish.prompt) return;
  row.name("learned").begin_array();
  for (const bool learned : encoded.learned) row.value(learned ? 1 : 0);
  row.end_array();
}

}  // namespace

std::int64_t print_rendered(const RenderWish& wish) {
  const chat::ChatFormat format(wish.tokenizer, wish.chat_template, wish.date);
  chat::ChatEncoder encoder(format, asked_to_learn(wish.learn));
  LineReader file(wish.chats);
  std::int64_t refused = 0;
  std::string line;
  for (std::int64_t number = 1; file.next(line); ++number) {
    if (trim(line).empty()) continue;
    const std::string place = wish.chats.string() + ":" + std::to_string(number);
    JsonWriter row;
    row.begin_object();
    try {
      write_row(wish, encoder, chat::read_conversation(parse_json(line, place), place), row);
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

}  // namespace prun
