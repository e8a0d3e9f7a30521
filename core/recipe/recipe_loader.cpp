// Reads recipe files and follows their includes.
#include "recipe/recipe_loader.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/file_system.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "recipe/toml_reader.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- recipe loader

namespace fs = std::filesystem;

constexpr std::size_t max_file = 1024 * 1024;
constexpr std::size_t max_depth = 8;
constexpr std::size_t max_files = 32;
constexpr std::string_view include_key = "include";

// Says whether a path lies in a folder; both are canonical.
bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

class Loader {
 public:
  Loader(fs::path root, Diagnostics& diagnostics) : root_(std::move(root)), diagnostics_(diagnostics) {}

  // Loads a text; `shown` is the path as the user would write it.
  Node load(const fs::path& shown, std::string text) {
    const auto source =
        std::make_shared<const Source>(Source{shown.string(), std::move(text), files_++, Source::Kind::file});
    if (!main_) main_ = source;
    std::optional<Node> own = read_toml(source, diagnostics_);
    if (!own) return {};
    stack_.push_back(fs::weakly_canonical(shown));
    Node merged;
    merged.at = own->at;
    for (const Node& entry : take_includes(*own)) include(shown, entry, merged);
    stack_.pop_back();
    merge_over(merged, std::move(*own));
    return merged;
  }

  const std::shared_ptr<const Source>& main() const { return main_; }
  std::size_t files() const { return files_; }

 private:
  // Removes the include key; returns the entries that are texts, and reports the others.
  std::vector<Node> take_includes(Node& root) {
    const auto found = std::find_if(root.members.begin(), root.members.end(),
                                    [](const Member& m) { return m.key == include_key; });
    if (found == root.members.end()) return {};
    const Node value = std::move(found->value);
    root.members.erase(found);
    if (value.kind != Node::Kind::list) {
      refuse(value, "wrong type for 'include': expected list of strings, got ", describe(value.kind),
             value.kind == Node::Kind::string ? "; write [" + to_toml(Value(value.text)) + "]" : "");
      return {};
    }
    std::vector<Node> entries;
    for (const Node& item : value.items) {
      if (item.kind == Node::Kind::string)
        entries.push_back(item);
      else
        refuse(item, "wrong type in 'include': expected string, got ", describe(item.kind));
    }
    return entries;
  }

  void include(const fs::path& from, const Node& entry, Node& merged) {
    const fs::path relative(entry.text);
    if (entry.text.empty() || entry.text.find('\0') != std::string::npos || relative.is_absolute())
      return refuse(entry, "include ", in_quotes(entry.text), " is not a path relative to this file");
    const fs::path shown = (from.parent_path() / relative).lexically_normal();
    std::error_code failed;
    const fs::path real = fs::weakly_canonical(shown, failed);
    if (failed || !lies_in(real, root_))
      return refuse(entry, "include ", in_quotes(entry.text),
                    " leaves the folder of the recipe; copy the file into it");
    if (std::find(stack_.begin(), stack_.end(), real) != stack_.end())
      return refuse(entry, "include ", in_quotes(entry.text),
                    " goes round in a circle: this file is being read");
    if (stack_.size() >= max_depth) return refuse(entry, "includes nest deeper than ", max_depth, " files");
    if (files_ >= max_files) return refuse(entry, "the recipe includes more than ", max_files, " files");
    try {
      merge_over(merged, load(shown, whole_file(real, max_file, "cannot include " + in_quotes(entry.text))));
    } catch (const Error& error) {
      refuse(entry, error.what());
    }
  }

  template <class... Parts>
  void refuse(const Node& node, const Parts&... parts) {
    diagnostics_.add(node.at, detail::concat(parts...));
  }

  fs::path root_;
  Diagnostics& diagnostics_;
  std::shared_ptr<const Source> main_;
  std::vector<fs::path> stack_;  // canonical paths of the files being read
  std::size_t files_ = 0;
};

}  // namespace

LoadedTree load_tree(const std::filesystem::path& file, Diagnostics& diagnostics) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored))
    throw_error(ErrorCode::bad_input, in_quotes(file.string()),
                " is a folder, not a recipe; a run goes on by prun RECIPE --set run.resume=", file.string());
  if (fs::status(file, ignored).type() == fs::file_type::not_found)
    throw_error(ErrorCode::not_found, "cannot read recipe ", in_quotes(file.string()),
                ": there is no such file", did_you_mean_beside(file));
  std::string text = whole_file(file, max_file, "cannot read recipe " + in_quotes(file.string()));
  Loader loader(fs::canonical(file).parent_path(), diagnostics);
  Node root = loader.load(file, std::move(text));
  return {std::move(root), loader.main(), loader.files()};
}

LoadedTree load_tree_from_text(std::string text, std::string name, Diagnostics& diagnostics) {
  const auto source =
      std::make_shared<const Source>(Source{std::move(name), std::move(text), 0, Source::Kind::file});
  if (source->text.size() > max_file) {
    diagnostics.add(Location{source}, "the recipe is larger than " + std::to_string(max_file) + " bytes");
    return {Node{}, source, 1};
  }
  Node root = read_toml(source, diagnostics).value_or(Node{});
  if (const Member* member = root.find(include_key))
    diagnostics.add(member->at, "'include' needs a recipe that lies in a file");
  return {std::move(root), source, 1};
}

namespace {

// ------------------------------------------------------------------- overrides
// Puts single values over a tree.

constexpr std::size_t max_override = 64 * 1024;
constexpr std::size_t max_parts = 16;

std::optional<std::size_t> index_of(std::string_view part) {
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || stop != part.data() + part.size()) return std::nullopt;
  return index;
}

std::uint32_t code_points(std::string_view text) {
  std::uint32_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(decode_utf8(text).bytes);
  return count;
}

class Override {
 public:
  Override(const std::shared_ptr<const Source>& source, std::string_view prefix, Diagnostics& diagnostics)
      : source_(source), prefix_(prefix), diagnostics_(diagnostics) {}

  void apply(Node& root) {
    const std::string_view all = std::string_view(source_->text).substr(prefix_.size());
    const std::size_t equals = all.find('=');
    if (all.size() > max_override || !valid_utf8(all)) return refuse("is too long or not UTF-8");
    if (equals == std::string_view::npos) return refuse("has no '='; write section.key=value");
    path_ = trim(all.substr(0, equals));
    value_ = all.substr(equals + 1);
    const std::vector<std::string_view> parts = split(path_, '.');
    if (parts.size() > max_parts)
      return refuse("has a path of more than " + std::to_string(max_parts) + " names");
    Node* node = &root;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool next_is_index = i + 1 < parts.size() && index_of(parts[i + 1]).has_value();
      const bool last = i + 1 == parts.size();
      node = step(*node, parts[i], last, next_is_index);
      if (!node) return;
    }
    *node = bare_value();
  }

 private:
  // Returns the child of `node` that `part` names, made if missing. Only the last one counts as written here.
  Node* step(Node& node, std::string_view part, bool last, bool next_is_index) {
    if (part.empty()) return refuse("has an empty name in its path"), nullptr;
    if (node.kind == Node::Kind::list) return step_into_list(node, part);
    if (node.kind == Node::Kind::bare && trim(node.text) == "{}") node.kind = Node::Kind::table;
    if (node.kind != Node::Kind::table)
      return refuse("goes through a value that is neither table nor list, before " + in_quotes(part)),
             nullptr;
    if (Member* const member = node.find(part)) {
      if (last) member->at = key_place();
      return &member->value;
    }
    Node child;
    child.kind = next_is_index ? Node::Kind::list : Node::Kind::table;
    child.at = key_place();
    node.members.push_back({std::string(part), key_place(), std::move(child)});
    return &node.members.back().value;
  }

  Node* step_into_list(Node& list, std::string_view part) {
    const std::optional<std::size_t> index = index_of(part);
    if (!index) return refuse("needs the index of an item where it says " + in_quotes(part)), nullptr;
    if (*index > list.items.size())
      return refuse("names item " + in_quotes(part) + " of a list of " + std::to_string(list.items.size()) +
                    "; items count from 0, and the next one would be " + std::to_string(list.items.size())),
             nullptr;
    if (*index == list.items.size()) {
      Node item;
      item.at = key_place();
      list.items.push_back(std::move(item));
    }
    return &list.items[*index];
  }

  Node bare_value() const {
    Node node;
    node.kind = Node::Kind::bare;
    node.text = value_;
    const std::uint32_t length = code_points(value_);
    node.at = {source_, 1, code_points(source_->text) - length + 1, std::max(length, 1u)};
    return node;
  }

  Location key_place() const { return {source_, 1, code_points(prefix_) + 1, code_points(path_)}; }

  void refuse(const std::string& reason) {
    const Location at{source_, 1, code_points(prefix_) + 1, 1};
    diagnostics_.add(at, "the override " + reason);
  }

  std::shared_ptr<const Source> source_;
  std::string_view prefix_, path_, value_;
  Diagnostics& diagnostics_;
};

}  // namespace

void apply_override(Node& root, const std::shared_ptr<const Source>& source, std::string_view prefix,
                    Diagnostics& diagnostics) {
  Override(source, prefix, diagnostics).apply(root);
}

// ------------------------------------------------------------------- plugin paths
// Reads the folders a recipe names for plugins, before any plugin is known.

std::vector<std::filesystem::path> plugin_paths(const std::filesystem::path& file,
                                                std::span<const std::string> overrides) {
  Diagnostics ignored;  // the full reading reports them
  std::vector<std::filesystem::path> paths;
  Node root = load_tree(file, ignored).root;
  for (const std::string& text : overrides) {
    auto source = std::make_shared<Source>();
    source->name = text;
    source->text = text;
    source->kind = Source::Kind::override_;
    if (text.rfind("plugins.", 0) == 0) apply_override(root, source, "", ignored);
  }
  const Member* const plugins = root.find("plugins");
  const Member* const path = plugins ? plugins->value.find("path") : nullptr;
  if (!path) return paths;
  for (const Node& item : path->value.items)
    if (item.kind == Node::Kind::string) paths.emplace_back(item.text);
  if (path->value.kind == Node::Kind::bare)
    if (const auto value = parse_value(OptionType::strings, path->value.text))
      for (const std::string& one : std::get<std::vector<std::string>>(*value)) paths.emplace_back(one);
  return paths;
}

}  // namespace prun::recipe
