// Finds the PRUN note among a file's notes and parses its `key=value` lines.
#include "plugin/note.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "base/durable_file.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

constexpr std::string_view note_owner = "PRUN";
constexpr std::uint32_t note_type = 1;
constexpr std::string_view options_line = "options:";
constexpr std::size_t word_limit = 64;

constexpr std::array<std::string_view, 9> kinds = {"model",  "strategy", "optimizer", "data", "observer",
                                                   "device", "op",       "schedule",  "comm"};

template <class... Parts>
[[noreturn]] void damaged(const std::string& name, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "'", name, "' has a damaged PRUN note: ", parts...,
              "; build the plugin again");
}

using Fields = std::map<std::string, std::string, std::less<>>;

// Takes one line off the text.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// Takes the fields, and leaves what follows the line `options:` in `text`.
Fields take_fields(std::string_view& text, const std::string& name) {
  Fields fields;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line == options_line) return fields;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) damaged(name, "'", line, "' is no key=value line");
    const auto [at, fresh] = fields.emplace(line.substr(0, equals), line.substr(equals + 1));
    if (!fresh) damaged(name, "the key '", at->first, "' occurs twice");
  }
  damaged(name, "it has no line '", options_line, "'");
}

std::string field(const Fields& fields, std::string_view key, const std::string& name) {
  const auto at = fields.find(key);
  if (at == fields.end()) damaged(name, "it lacks the key '", key, "'");
  return at->second;
}

std::string word_field(const Fields& fields, std::string_view key, const std::string& name) {
  std::string word = field(fields, key, name);
  if (!is_plugin_word(word))
    damaged(name, "its ", key, " '", word, "' must be 1 to ", word_limit, " of a-z, 0-9, '-' and '_'");
  return word;
}

std::uint32_t epoch_field(const Fields& fields, const std::string& name) {
  const std::string text = field(fields, "epoch", name);
  std::uint32_t epoch = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epoch);
  if (error != std::errc{} || end != text.data() + text.size())
    damaged(name, "its epoch '", text, "' is not a number");
  return epoch;
}

std::string layout_field(const Fields& fields, const std::string& name) {
  std::string text = field(fields, "layout", name);
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    damaged(name, "its layout hash '", text, "' is not 16 hexadecimal digits");
  return text;
}

std::map<std::string, std::string> parse_traits(std::string_view text, const std::string& name) {
  std::map<std::string, std::string> traits;
  for (std::string_view part : split(text, ';')) {
    part = trim(part);
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) damaged(name, "the trait '", part, "' is no key=value pair");
    const std::string_view key = trim(part.substr(0, equals));
    if (key.empty() || !traits.emplace(key, trim(part.substr(equals + 1))).second)
      damaged(name, "the trait '", part, "' has no key, or one that occurs twice");
  }
  return traits;
}

// Returns the text of the one PRUN note.
std::string_view prun_text(const std::vector<ElfNote>& notes, const std::string& name) {
  const auto ours = [](const ElfNote& note) { return note.owner == note_owner; };
  const auto found = std::find_if(notes.begin(), notes.end(), ours);
  if (found == notes.end())
    throw_error(ErrorCode::bad_input, "'", name,
                "' has no PRUN note, so it is no prun plugin (its source needs a PRUN_PLUGIN line)");
  if (std::count_if(notes.begin(), notes.end(), ours) > 1)
    damaged(name, "there is more than one; a library holds one plugin");
  if (found->type != note_type) damaged(name, "its type is ", found->type, ", not ", note_type);
  return found->description;
}

std::string build_id(const std::vector<ElfNote>& notes) {
  std::string digits;
  for (const ElfNote& note : notes) {
    if (note.owner != ELF_NOTE_GNU || note.type != NT_GNU_BUILD_ID || note.description.size() > 64) continue;
    digits.clear();
    for (const char c : note.description) {
      const auto byte = static_cast<unsigned char>(c);
      digits += "0123456789abcdef"[byte >> 4];
      digits += "0123456789abcdef"[byte & 15];
    }
  }
  return digits;
}

void add_linkage(const ElfFile& file, PluginNote& note) {
  note.needed = file.needed();
  const auto symbols = file.dynamic_symbols();
  note.has_symbol_table = symbols.has_value();
  if (!symbols) return;
  for (const ElfSymbol& symbol : *symbols)
    (symbol.defined ? note.exports : note.undefined).push_back(symbol.name);
}

}  // namespace

std::string describe(const PluginNote& note) { return note.kind + " plugin '" + note.name + "'"; }

std::span<const std::string_view> plugin_kinds() { return kinds; }

bool is_plugin_word(std::string_view text) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= word_limit && plain(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return plain(c) || c == '-' || c == '_'; });
}

PluginNote parse_note_text(std::string_view text, const std::string& name) {
  if (!is_plain_text(text, "\n\t")) damaged(name, "it is not printable UTF-8 text");
  const Fields fields = take_fields(text, name);
  PluginNote note;
  note.kind = word_field(fields, "kind", name);
  note.name = word_field(fields, "name", name);
  note.version = field(fields, "version", name);
  note.help = field(fields, "help", name);
  note.traits = parse_traits(field(fields, "traits", name), name);
  note.epoch = epoch_field(fields, name);
  note.abi = field(fields, "abi", name);
  note.layout = layout_field(fields, name);
  note.sdk = field(fields, "sdk", name);
  note.options = text;
  return note;
}

PluginNote read_note(const ByteSource& source, const std::string& name) {
  const ElfFile file(source, name);
  const std::vector<ElfNote> notes = file.notes();
  PluginNote note = parse_note_text(prun_text(notes, name), name);
  note.build_id = build_id(notes);
  add_linkage(file, note);
  return note;
}

PluginNote read_note(int fd, const std::string& name) { return read_note(source_of_file(fd, name), name); }

PluginNote read_note(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) {
    const auto code = errno == ENOENT ? ErrorCode::not_found : ErrorCode::storage;
    throw_error(code, "cannot open '", path.string(), "': ", std::strerror(errno));
  }
  return read_note(file.get(), path.string());
}

}  // namespace prun
