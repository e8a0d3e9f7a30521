#include "cli/settable.hpp"

#include <map>
#include <set>

#include "recipe/core_schema.hpp"

namespace prun::recipe {
namespace {

constexpr int listed_items = 4;

// Collects keys; one that several plugins have takes what any of them takes.
class Keys {
 public:
  explicit Keys(const PluginCatalog& catalog) : catalog_(catalog) {}

  void add_section(const SectionRule& rule) {
    if (!rule.list) return add_under(rule, rule.name + ".");
    for (int item = 0; item < listed_items; ++item)
      add_under(rule, rule.name + "." + std::to_string(item) + ".");
  }
  std::vector<SettableKey> take() const {
    std::vector<SettableKey> keys;
    for (const auto& [path, values] : found_) keys.push_back({path, {values.begin(), values.end()}});
    return keys;
  }

 private:
  void add_under(const SectionRule& rule, const std::string& prefix) {
    add_options(rule.schema, prefix);
    each_plugin(rule.plugin_kind, [&](const std::string& name, const Schema& schema) {
      found_[prefix + "plugin"].insert(name);
      add_options(schema, prefix);
    });
    each_plugin(rule.table_kind, [&](const std::string& name, const Schema& schema) {
      add_options(schema, prefix + name + ".");
    });
  }

  template <class Body>
  void each_plugin(const std::string& kind, Body&& body) {
    if (kind.empty()) return;
    for (const std::string& name : catalog_.names(kind))
      if (const Schema* const schema = catalog_.schema(kind, name)) body(name, *schema);
  }

  void add_options(const Schema& schema, const std::string& prefix) {
    for (const Option& option : schema.options()) {
      if (option.key == "*") continue;
      std::set<std::string>& values = found_[prefix + option.key];
      values.insert(option.choices.begin(), option.choices.end());
      if (option.type == OptionType::boolean) values.insert({"true", "false"});
    }
  }

  const PluginCatalog& catalog_;
  std::map<std::string, std::set<std::string>> found_;
};

}  // namespace

std::vector<SettableKey> settable_keys(const PluginCatalog& catalog) {
  Keys keys(catalog);
  for (const SectionRule& rule : core_sections()) keys.add_section(rule);
  return keys.take();
}

}  // namespace prun::recipe
