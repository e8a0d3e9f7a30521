// Shows problems with their source line and a caret.
#include "recipe/diagnostics.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- diagnostics

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

namespace {

// ------------------------------------------------------------------- suggest
// Finds the name that was probably meant.

struct Alias {
  std::string_view name;
  std::string_view section;
  std::string_view key;
};

// Other trainers use these names. An entry counts only if this recipe's section has the key.
constexpr std::array<Alias, 54> aliases = {{
    {"learning_rate", "optimizer", "lr"},
    {"max_lr", "optimizer", "lr"},
    {"grad_clip", "optimizer", "clip"},
    {"gradient_clipping", "optimizer", "clip"},
    {"clip_grad", "optimizer", "clip"},
    {"max_grad_norm", "optimizer", "clip"},
    {"max_norm", "optimizer", "clip"},
    {"warmup_steps", "optimizer", "schedule.warmup"},
    {"warmup_iters", "optimizer", "schedule.warmup"},
    {"lr_warmup_iters", "optimizer", "schedule.warmup"},
    {"lr_schedule", "optimizer", "schedule.kind"},
    {"lr_scheduler", "optimizer", "schedule.kind"},
    {"lr_decay_style", "optimizer", "schedule.kind"},
    {"lr_decay_iters", "optimizer", "schedule.steps"},
    {"min_lr", "optimizer", "schedule.final"},
    {"weight_decay", "optimizer", "weight_decay"},
    {"batch_size", "batch", "global"},
    {"size", "batch", "global"},
    {"global_batch_size", "batch", "global"},
    {"train_batch_size", "batch", "global"},
    {"micro_batch_size", "batch", "micro"},
    {"micro_batch", "batch", "micro"},
    {"per_device_train_batch_size", "batch", "micro"},
    {"train_micro_batch_size_per_gpu", "batch", "micro"},
    {"max_steps", "run", "steps"},
    {"train_iters", "run", "steps"},
    {"max_iters", "run", "steps"},
    {"epochs", "run", "steps"},
    {"num_train_epochs", "run", "steps"},
    {"max_epochs", "run", "steps"},
    {"iterations", "run", "steps"},
    {"output_dir", "run", "out"},
    {"out_dir", "run", "out"},
    {"save_interval", "run", "save_every"},
    {"save_steps", "run", "save_every"},
    {"save_total_limit", "run", "keep"},
    {"load", "run", "resume"},
    {"random_seed", "run", "seed"},
    {"dtype", "precision", "compute"},
    {"num_layers", "model", "layers"},
    {"n_layer", "model", "layers"},
    {"num_hidden_layers", "model", "layers"},
    {"hidden_size", "model", "hidden"},
    {"n_embd", "model", "hidden"},
    {"num_attention_heads", "model", "heads"},
    {"n_head", "model", "heads"},
    {"seq_length", "model", "seq"},
    {"block_size", "model", "seq"},
    {"max_position_embeddings", "model", "seq"},
    {"vocab_size", "model", "vocab"},
    {"tensor_parallel", "mesh", "tp"},
    {"tensor_model_parallel_size", "mesh", "tp"},
    {"pipeline_model_parallel_size", "mesh", "pp"},
    {"data_parallel", "mesh", "dp"},
}};

struct SectionAlias {
  std::string_view name;
  std::string_view section;
};

constexpr std::array<SectionAlias, 9> section_aliases = {{{"train", "run"},
                                                          {"training", "run"},
                                                          {"trainer", "run"},
                                                          {"dataset", "data"},
                                                          {"optim", "optimizer"},
                                                          {"parallel", "mesh"},
                                                          {"parallelism", "mesh"},
                                                          {"dtype", "precision"},
                                                          {"logging", "observer"}}};

bool has_key(const KeySet& set, std::string_view key) {
  return std::any_of(set.keys.begin(), set.keys.end(),
                     [key](const std::string& known) { return known == key || known == "*"; });
}

bool has_named_key(const KeySet& set, std::string_view key) {
  return std::find(set.keys.begin(), set.keys.end(), key) != set.keys.end();
}

const KeySet* find_set(std::span<const KeySet> sections, std::string_view section) {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [section](const KeySet& set) { return set.section == section; });
  return found == sections.end() ? nullptr : &*found;
}

std::string did_you_mean(std::string_view key) { return "; did you mean '" + std::string(key) + "'?"; }

std::string from_alias(std::string_view key, const KeySet* here, std::span<const KeySet> sections) {
  constexpr std::array<std::string_view, 6> accumulations = {
      "gradient_accumulation", "gradient_accumulation_steps", "grad_accum", "accumulate",
      "accumulation",          "accumulation_steps"};
  if (std::find(accumulations.begin(), accumulations.end(), key) != accumulations.end())
    return "; accumulation follows from batch.global, batch.micro and the mesh";
  for (const Alias& alias : aliases) {
    if (alias.name != key) continue;
    const KeySet* const set = find_set(sections, alias.section);
    if (!set || !has_key(*set, alias.key)) continue;
    if (set == here) return did_you_mean(alias.key);
    return "; it is '" + std::string(alias.key) + "' in " + set->label;
  }
  return {};
}

// Returns the section's own key that is one slip away, or whose last part is this very name.
std::string close_by(std::string_view key, const KeySet& here) {
  for (const std::string& known : here.keys)
    if (known != "*" && (edit_distance(key, known) == 1 || known.ends_with("." + std::string(key))))
      return did_you_mean(known);
  return {};
}

// Returns the nearest key; of a dotted key only the last part can be a slip: the table it lies in exists.
std::string nearest_key(std::string_view key, const KeySet& here) {
  const std::string_view table = key.substr(0, key.rfind('.') + 1);
  std::vector<std::string> last_parts;
  for (const std::string& known : here.keys)
    if (known.starts_with(table)) last_parts.push_back(known.substr(table.size()));
  const std::string near = nearest(key.substr(table.size()), last_parts);
  return near.empty() ? "" : std::string(table) + near;
}

std::string elsewhere(std::string_view key, std::span<const KeySet> sections) {
  if (key == "plugin") return {};
  for (const KeySet& set : sections)
    if (has_named_key(set, key)) return "; it belongs in " + set.label;
  for (const KeySet& set : sections)
    for (const std::string& known : set.keys)
      if (known.ends_with("." + std::string(key))) return "; it is '" + known + "' in " + set.label;
  return {};
}

// Lists all keys if they are few enough to be read.
std::string all_keys(const KeySet& set) {
  constexpr std::size_t most = 10;
  const bool any_name = has_named_key(set, "*");
  return set.keys.empty() || set.keys.size() > most || any_name ? "" : "; there are " + join(set.keys, ", ");
}

}  // namespace

std::string suggest_key(std::string_view key, std::size_t here, std::span<const KeySet> sections) {
  const KeySet* const own = here < sections.size() ? &sections[here] : nullptr;
  std::string found = own ? close_by(key, *own) : "";
  if (found.empty()) found = from_alias(key, own, sections);
  if (found.empty()) found = elsewhere(key, sections);
  if (!found.empty() || !own) return found;
  const std::string near = nearest_key(key, *own);
  return near.empty() ? all_keys(*own) : did_you_mean(near);
}

std::string key_by_alias(std::string_view name, const KeySet& section) {
  for (const Alias& alias : aliases)
    if (alias.name == name && alias.section == section.section && has_named_key(section, alias.key))
      return std::string(alias.key);
  return {};
}

std::string suggest_section(std::string_view name, std::span<const KeySet> sections) {
  std::string meant;
  for (const SectionAlias& alias : section_aliases)
    if (alias.name == name) meant = alias.section;
  std::vector<std::string> known;
  for (const KeySet& set : sections) known.push_back(set.section);
  if (meant.empty()) meant = nearest(name, known);
  const KeySet* const set = find_set(sections, meant);
  return set ? "; did you mean " + set->label.substr(0, set->label.find(' ')) + "?" : "";
}

std::string suggest_plugin(std::string_view name, std::span<const std::string> known) {
  const std::string near = nearest(name, known);
  if (!near.empty()) return did_you_mean(near);
  return known.empty() ? "; there is none" : "; there is " + join(known, ", ");
}

}  // namespace prun::recipe
