// Reads recipe files and follows their includes.
#include "recipe/recipe_loader.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/near_path.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "recipe/toml_reader.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

namespace {

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

}  // namespace prun::recipe
