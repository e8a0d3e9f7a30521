#include "report/html.hpp"

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// Says whether a letter shows nothing, or turns others round.
bool is_deceptive(char32_t letter) {
  return (is_control(letter) && letter != '\n' && letter != '\t') || letter == 0x200B;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint letter = decode_utf8(text);
    switch (letter.value) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        out += letter.valid && !is_deceptive(letter.value) ? text.substr(0, letter.bytes) : replacement;
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

std::string escaped_json(std::string json) {
  for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

void Html::begin(std::string_view tag, Attributes attributes) {
  text_.append("<").append(tag);
  for (const auto& [name, value] : attributes)
    text_.append(" ").append(name).append("=\"").append(escaped(value)).append("\"");
  text_ += '>';
}

Html& Html::open(std::string_view tag, Attributes attributes) {
  begin(tag, attributes);
  open_.emplace_back(tag);
  return *this;
}

Html& Html::close() {
  PRUN_CHECK(!open_.empty(), "an element is closed that was not opened");
  text_.append("</").append(open_.back()).append(">");
  open_.pop_back();
  return *this;
}

Html& Html::text(std::string_view text) {
  text_ += escaped(text);
  return *this;
}

Html& Html::element(std::string_view tag, std::string_view content, Attributes attributes) {
  return open(tag, attributes).text(content).close();
}

Html& Html::empty(std::string_view tag, Attributes attributes) {
  begin(tag, attributes);
  return *this;
}

Html& Html::add(const Html& part) {
  PRUN_CHECK(part.open_.empty(), "a part of a page with an open element ", part.open_.back());
  text_ += part.text_;
  return *this;
}

Html& Html::trusted(std::string_view markup) {
  text_ += markup;
  return *this;
}

std::string Html::take() {
  PRUN_CHECK(open_.empty(), "a page with an open element ", open_.back());
  return std::move(text_);
}

}  // namespace prun
