// Finds the PRUN note among a file's notes and parses its `key=value` lines.
#include "plugin/note.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- elf file
// Reads ELF64 within bounds: headers, PT_NOTE, PT_DYNAMIC and SHT_DYNSYM.

static_assert(std::endian::native == std::endian::little, "ELF records are read as they lie in the file");

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t note_limit = mebibyte;  // limit of all notes together
constexpr std::uint64_t header_limit = mebibyte;
constexpr std::uint64_t dynamic_limit = mebibyte;
constexpr std::uint64_t table_limit = 16 * mebibyte;  // limit of symbols, and of strings
constexpr std::uint64_t symbol_text_limit =
    32 * mebibyte;  // names may overlap in the file, but not in memory

template <class Record>
Record record_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  Record record;
  std::memcpy(&record, bytes.data() + offset, sizeof record);
  return record;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ByteSource source_of_file(int fd, const std::string& name) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    throw_error(ErrorCode::storage, "cannot examine '", name, "': ", std::strerror(errno));
  const auto read = [fd, name](std::uint64_t offset, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw_error(ErrorCode::storage, "cannot read '", name, "': ", std::strerror(errno));
      if (count == 0) throw_error(ErrorCode::storage, "'", name, "' became shorter while it was read");
      offset += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  };
  return {static_cast<std::uint64_t>(info.st_size), read};
}

ByteSource source_of_bytes(std::span<const std::byte> bytes) {
  return {bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> out) {
            std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
          }};
}

bool is_plain_text(std::string_view text, std::string_view allowed) {
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const bool exempt = allowed.find(text.front()) != std::string_view::npos;
    if (!point.valid || (is_control(point.value) && !exempt)) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

template <class... Parts>
void ElfFile::damaged(const Parts&... parts) const {
  throw_error(ErrorCode::bad_input, "'", name_, "' is a damaged ELF file: ", parts...);
}

ElfFile::ElfFile(ByteSource source, std::string name) : source_(std::move(source)), name_(std::move(name)) {
  const Bytes magic = read(0, std::min<std::uint64_t>(source_.size, EI_NIDENT), EI_NIDENT, "identification");
  if (magic.size() < SELFMAG || std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0)
    throw_error(ErrorCode::bad_input, "'", name_, "' is not an ELF file, so it is no plugin");
  header_ = records<Elf64_Ehdr>(0, 1, header_limit, "header").front();
  if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB)
    throw_error(ErrorCode::bad_input, "'", name_,
                "' is an ELF file for another kind of machine: plugins are 64-bit and little-endian");
  if (header_.e_type != ET_DYN)
    throw_error(ErrorCode::bad_input, "'", name_, "' is an ELF file, but not a shared library");
  if (header_.e_phentsize != sizeof(Elf64_Phdr)) damaged("its program headers have a wrong size");
  segments_ = records<Elf64_Phdr>(header_.e_phoff, header_.e_phnum, header_limit, "program headers");
}

ElfFile::Bytes ElfFile::read(std::uint64_t offset, std::uint64_t size, std::uint64_t limit,
                             std::string_view what) const {
  if (size > limit) damaged("its ", what, " would take ", size, " bytes, more than the ", limit, " allowed");
  if (offset > source_.size || size > source_.size - offset)
    damaged("its ", what, " would end beyond the file's ", source_.size, " bytes (cut off while copying?)");
  Bytes bytes(size);
  if (size > 0) source_.read(offset, bytes);
  return bytes;
}

template <class Record>
std::vector<Record> ElfFile::records(std::uint64_t offset, std::uint64_t count, std::uint64_t limit,
                                     std::string_view what) const {
  if (count > limit / sizeof(Record)) damaged("it has ", count, " ", what, ", too many to be true");
  const Bytes bytes = read(offset, count * sizeof(Record), limit, what);
  std::vector<Record> list(count);
  if (count > 0) std::memcpy(list.data(), bytes.data(), bytes.size());
  return list;
}

std::string ElfFile::text_at(const Bytes& strings, std::uint64_t offset) const {
  if (offset >= strings.size()) damaged("a name lies outside its string table");
  const auto begin = strings.begin() + static_cast<std::ptrdiff_t>(offset);
  const auto end = std::find(begin, strings.end(), std::byte{0});
  if (end == strings.end()) damaged("its string table does not end in a zero byte");
  std::string text = text_of({begin, end});
  if (!is_plain_text(text)) damaged("a name in its string table is not printable text");
  return text;
}

std::uint64_t ElfFile::offset_of_address(std::uint64_t address) const {
  for (const Elf64_Phdr& s : segments_)
    if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
      return s.p_offset + (address - s.p_vaddr);
  damaged("an address in its dynamic section lies in no segment");
}

std::vector<ElfNote> ElfFile::notes() const {
  std::vector<ElfNote> notes;
  std::uint64_t budget = note_limit;
  for (const Elf64_Phdr& segment : segments_)
    if (segment.p_type == PT_NOTE) append_notes(segment, budget, notes);
  return notes;
}

// `budget` counts the bytes of notes that may still be read.
void ElfFile::append_notes(const Elf64_Phdr& segment, std::uint64_t& budget,
                           std::vector<ElfNote>& notes) const {
  const Bytes bytes = read(segment.p_offset, segment.p_filesz, budget, "notes");
  budget -= bytes.size();
  const std::uint64_t align = segment.p_align == 8 ? 8 : 4;
  const auto aligned = [&](std::uint64_t size) { return (size + align - 1) / align * align; };
  for (std::uint64_t at = 0; at < bytes.size();) {
    if (bytes.size() - at < sizeof(Elf64_Nhdr)) damaged("a note is cut off");
    const auto header = record_at<Elf64_Nhdr>(bytes, at);
    const std::uint64_t owner = at + sizeof header;
    const std::uint64_t description = at + aligned(sizeof header + header.n_namesz);
    if (description > bytes.size() || header.n_descsz > bytes.size() - description)
      damaged("a note is longer than the segment that holds it");
    const std::span<const std::byte> all(bytes);
    std::string name = text_of(all.subspan(owner, header.n_namesz));
    if (!name.empty() && name.back() == '\0') name.pop_back();
    notes.push_back({std::move(name), header.n_type, text_of(all.subspan(description, header.n_descsz))});
    // The last note need not be padded.
    at = std::min<std::uint64_t>(bytes.size(), at + aligned(description - at + header.n_descsz));
  }
}

// Reads them where the loader does: at the address in memory.
std::vector<Elf64_Dyn> ElfFile::dynamic_entries() const {
  const auto segment = std::find_if(segments_.begin(), segments_.end(),
                                    [](const Elf64_Phdr& s) { return s.p_type == PT_DYNAMIC; });
  if (segment == segments_.end()) damaged("it has no dynamic section");
  auto entries = records<Elf64_Dyn>(offset_of_address(segment->p_vaddr),
                                    segment->p_filesz / sizeof(Elf64_Dyn), dynamic_limit, "dynamic section");
  entries.erase(
      std::find_if(entries.begin(), entries.end(), [](const auto& e) { return e.d_tag == DT_NULL; }),
      entries.end());
  return entries;
}

// The last entry of a tag counts.
ElfFile::Dynamic ElfFile::by_tag(std::span<const Elf64_Dyn> entries) {
  Dynamic dynamic;
  for (const Elf64_Dyn& entry : entries) dynamic[entry.d_tag] = entry.d_un.d_val;
  return dynamic;
}

ElfFile::Bytes ElfFile::dynamic_strings(const Dynamic& dynamic) const {
  const auto address = dynamic.find(DT_STRTAB), size = dynamic.find(DT_STRSZ);
  return read(offset_of_address(address == dynamic.end() ? 0 : address->second),
              size == dynamic.end() ? 0 : size->second, table_limit, "string table");
}

std::vector<std::string> ElfFile::needed() const {
  const std::vector<Elf64_Dyn> entries = dynamic_entries();
  const Bytes strings = dynamic_strings(by_tag(entries));
  std::vector<std::string> libraries;
  std::uint64_t budget = symbol_text_limit;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag != DT_NEEDED) continue;
    libraries.push_back(text_at(strings, entry.d_un.d_val));
    if (libraries.back().size() > budget) damaged("the names of its libraries are too long to be true");
    budget -= libraries.back().size();
  }
  return libraries;
}

// ------------------------------------------------------------------- what the loader takes for granted

void ElfFile::check_loadable() const {
  const Dynamic dynamic = by_tag(dynamic_entries());
  check_relocations(dynamic);
  check_versions(dynamic);
  check_hashes(dynamic);
}

void ElfFile::check_relocations(const Dynamic& dynamic) const {
  const auto value = [&](std::int64_t tag, std::uint64_t otherwise) {
    const auto found = dynamic.find(tag);
    return found == dynamic.end() ? otherwise : found->second;
  };
  const bool has_table = dynamic.contains(DT_RELA);
  if (value(DT_PLTREL, DT_RELA) != DT_RELA || (has_table && value(DT_RELAENT, 0) != sizeof(Elf64_Rela)) ||
      (dynamic.contains(DT_REL) && value(DT_RELENT, 0) != sizeof(Elf64_Rel)))
    damaged("its relocations are of a wrong kind or size");
  const std::uint64_t relative = header_.e_machine == EM_X86_64    ? R_X86_64_RELATIVE
                                 : header_.e_machine == EM_AARCH64 ? R_AARCH64_RELATIVE
                                                                   : 0;
  const std::uint64_t count = std::min(value(DT_RELACOUNT, 0), value(DT_RELASZ, 0) / sizeof(Elf64_Rela));
  if (!has_table || relative == 0 || count == 0) return;
  for (const Elf64_Rela& one :
       records<Elf64_Rela>(offset_of_address(value(DT_RELA, 0)), count, table_limit, "relocations"))
    if (ELF64_R_TYPE(one.r_info) != relative) damaged("a relocation is of another type than it must be");
}

// A file may need versions only of libraries that it needs.
void ElfFile::check_versions(const Dynamic& dynamic) const {
  constexpr int most = 10'000;
  const auto table = dynamic.find(DT_VERNEED);
  if (table == dynamic.end()) return;
  const std::vector<std::string> libraries = needed();
  const Bytes strings = dynamic_strings(dynamic);
  std::uint64_t address = table->second;
  for (int i = 0; i < most; ++i) {
    const auto one =
        records<Elf64_Verneed>(offset_of_address(address), 1, table_limit, "needed versions").front();
    if (std::find(libraries.begin(), libraries.end(), text_at(strings, one.vn_file)) == libraries.end())
      damaged("it needs versions of a library that it does not need");
    if (one.vn_next == 0) return;
    address += one.vn_next;
  }
  damaged("it has more than ", most, " needed versions, too many to be true");
}

void ElfFile::check_hashes(const Dynamic& dynamic) const {
  const auto table = dynamic.find(DT_GNU_HASH);
  if (table == dynamic.end()) return;
  const auto words =
      records<std::uint32_t>(offset_of_address(table->second), 4, table_limit, "hashes of symbols");
  if ((words[2] & (words[2] - 1)) != 0) damaged("its hashes of symbols have an impossible size");
}

std::optional<std::vector<ElfSymbol>> ElfFile::dynamic_symbols() const {
  if (header_.e_shoff == 0) return std::nullopt;
  if (header_.e_shentsize != sizeof(Elf64_Shdr)) damaged("its section headers have a wrong size");
  const auto sections =
      records<Elf64_Shdr>(header_.e_shoff, header_.e_shnum, 8 * header_limit, "section headers");
  const auto table = std::find_if(sections.begin(), sections.end(),
                                  [](const Elf64_Shdr& s) { return s.sh_type == SHT_DYNSYM; });
  if (table == sections.end()) return std::nullopt;
  if (table->sh_link >= sections.size()) damaged("its symbol table names a string table that is not there");
  const Elf64_Shdr& link = sections[table->sh_link];
  const Bytes strings = read(link.sh_offset, link.sh_size, table_limit, "string table");
  const auto entries = records<Elf64_Sym>(table->sh_offset, table->sh_size / sizeof(Elf64_Sym), table_limit,
                                          "dynamic symbols");
  std::vector<ElfSymbol> symbols;
  std::uint64_t budget = symbol_text_limit;
  for (const Elf64_Sym& entry : entries) {
    if (ELF64_ST_BIND(entry.st_info) == STB_LOCAL) continue;
    symbols.push_back({text_at(strings, entry.st_name), entry.st_shndx != SHN_UNDEF});
    if (symbols.back().name.size() > budget) damaged("the names of its symbols are too long to be true");
    budget -= symbols.back().name.size();
  }
  return symbols;
}

namespace {

// ------------------------------------------------------------------- note

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

namespace {

// ------------------------------------------------------------------- compatibility
// Compares a note's epoch, ABI tag and layout hash with the core's.

template <class Side>
std::string mismatch(std::string_view what, const Side& theirs, std::string_view sdk, const Side& ours) {
  return detail::concat("it was built for ", what, " ", theirs, " (SDK ", sdk, "), this prun has ", ours,
                        " (SDK ", sdk_version, "); rebuild it against this prun's SDK");
}

}  // namespace

std::string incompatibility(const PluginNote& note) {
  const std::string layout(detail::layout_text.data(), detail::layout_text.size());
  if (note.epoch != plugin_epoch) return mismatch("epoch", note.epoch, note.sdk, plugin_epoch);
  if (note.abi != abi_tag) return mismatch("ABI", std::string_view(note.abi), note.sdk, abi_tag);
  if (note.layout != layout) return mismatch("interface layout", note.layout, note.sdk, layout);
  return "";
}

}  // namespace prun
