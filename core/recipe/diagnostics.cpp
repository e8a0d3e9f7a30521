// Shows problems with their source line and a caret.
#include "recipe/diagnostics.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::recipe {

namespace {

constexpr std::size_t max_shown_columns = 160;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

std::string_view line_of(std::string_view text, std::uint32_t line) {
  for (std::uint32_t n = 1; n < line; ++n) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

struct Piece {
  CodePoint point;
  std::string_view bytes;
};

std::vector<Piece> pieces_of(std::string_view text) {
  std::vector<Piece> pieces;
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    pieces.push_back({point, text.substr(0, point.bytes)});
    text.remove_prefix(point.bytes);
  }
  return pieces;
}

bool is_tab(const Piece& piece) { return piece.point.valid && piece.point.value == '\t'; }

bool shown_as_is(const Piece& piece) {
  return is_tab(piece) || (piece.point.valid && !is_control(piece.point.value));
}

std::size_t width_of(const Piece& piece) {
  const bool one = is_tab(piece) || !shown_as_is(piece);
  return one ? 1 : static_cast<std::size_t>(display_width(piece.point.value));
}

// Returns what goes under a piece that is `offset` pieces right of the caret. Tabs before the caret stay
// tabs, so that both lines indent alike.
std::string mark_under(const Piece& piece, std::ptrdiff_t offset, std::ptrdiff_t length) {
  if (offset < 0) return is_tab(piece) ? "\t" : std::string(width_of(piece), ' ');
  if (offset == 0) return "^" + std::string(std::max<std::size_t>(width_of(piece), 1) - 1, '~');
  return offset < length ? std::string(width_of(piece), '~') : "";
}

// Holds the two lines under a head: text of the source line, and the marks below it.
struct Snippet {
  std::string text;
  std::string marks;
};

// Returns the snippet; of a long line only the neighbourhood of the caret is shown.
Snippet snippet_of(std::string_view line, const Location& at) {
  if (at.line == 1 && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
  const std::vector<Piece> pieces = pieces_of(line);
  const std::size_t caret = std::min<std::size_t>(at.column > 0 ? at.column - 1 : 0, pieces.size());
  const std::size_t first = caret > max_shown_columns / 2 ? caret - max_shown_columns / 2 : 0;
  const std::size_t last = std::min(pieces.size(), first + max_shown_columns);
  Snippet snippet;
  if (first > 0) snippet = {"...", "   "};
  for (std::size_t i = first; i < last; ++i) {
    snippet.text += shown_as_is(pieces[i]) ? pieces[i].bytes : "?";
    const auto offset = static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(caret);
    snippet.marks += mark_under(pieces[i], offset, at.length);
  }
  if (caret >= last) snippet.marks += '^';
  if (last < pieces.size()) snippet.text += "...";
  return snippet;
}

std::string head_of(const Location& at) {
  std::string head = printable(at.source->name, 200);
  const bool placed = at.source->kind == Source::Kind::file && at.line > 0;
  if (placed) head += ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
  return head;
}

// Returns the key by which problems are sorted: those of a whole file come after those with a place.
auto sort_key(const Problem& problem) {
  const Location& at = problem.at;
  constexpr auto end = std::numeric_limits<std::uint32_t>::max();
  return std::tuple(at.source ? at.source->order : 0, at.line == 0 ? end : at.line, at.column);
}

}  // namespace

std::string describe(const Location& at) {
  if (!at.source) return "default";
  std::string text = printable(at.source->name, 200);
  if (at.source->kind == Source::Kind::file && at.line > 0) text += ":" + std::to_string(at.line);
  return text;
}

std::string render(const Problem& problem) {
  const Location& at = problem.at;
  if (!at.source) return "error: " + problem.message;
  if (at.line == 0) return head_of(at) + ": error: " + problem.message;
  const std::string_view first = first_line(problem.message);
  const std::string more = problem.message.substr(first.size());
  const std::string out = head_of(at) + ": error: " + std::string(first);
  const Snippet snippet = snippet_of(line_of(at.source->text, at.line), at);
  const bool numbered = at.source->kind == Source::Kind::file;
  const std::string number = numbered ? std::to_string(at.line) : "";
  const std::string blank(number.size(), ' ');
  return out + "\n  " + number + " | " + snippet.text + "\n  " + blank + " | " + snippet.marks + more;
}

std::string Diagnostics::text() const {
  std::vector<const Problem*> sorted;
  for (const Problem& problem : problems_) sorted.push_back(&problem);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Problem* a, const Problem* b) { return sort_key(*a) < sort_key(*b); });
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), max_shown); ++i)
    out += (i > 0 ? "\n" : "") + render(*sorted[i]);
  if (sorted.size() > max_shown) out += "\n... and " + std::to_string(sorted.size() - max_shown) + " more";
  return out;
}

void Diagnostics::throw_if_any() const {
  if (!problems_.empty()) throw Error(ErrorCode::bad_input, text());
}

}  // namespace prun::recipe
