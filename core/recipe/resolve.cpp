// Walks the sections of a recipe, section by section, and collects values and problems.
#include "recipe/resolve.hpp"

#include "base/text.hpp"
#include "recipe/section_entries.hpp"

namespace prun::recipe {

namespace {

class Resolver {
 public:
  Resolver(const Node& root, const std::shared_ptr<const Source>& main, const PluginCatalog& catalog,
           Diagnostics& diagnostics)
      : root_(root),
        diagnostics_(diagnostics),
        plugins_(main, catalog, diagnostics),
        entries_(main, plugins_, unknown_, diagnostics) {}

  ResolvedRecipe run() {
    for (const SectionRule& rule : core_sections()) resolve_rule(rule);
    unknown_.report(root_, diagnostics_);
    out_.entries = std::move(entries_.all());
    for (std::size_t i = 0; i < out_.entries.size(); ++i) out_.by_path.emplace(out_.entries[i].path, i);
    return std::move(out_);
  }

 private:
  // --- which tables of the tree belong to a rule

  const Node* find(std::string_view path) const {
    const Node* node = &root_;
    for (const std::string_view part : split(path, '.')) {
      const Member* const member = node->kind == Node::Kind::table ? node->find(part) : nullptr;
      if (!member) return nullptr;
      node = &member->value;
    }
    return node;
  }

  // Says whether a value is the bare text: `--set tier={}` takes the table out, as `--set observer=[]` does
  // those of a list.
  static bool is_bare(const Node* node, std::string_view text) {
    return node && node->kind == Node::Kind::bare && trim(node->text) == text;
  }

  void resolve_rule(const SectionRule& rule) {
    const Node* node = find(rule.name);
    if (!rule.list && is_bare(node, "{}")) node = nullptr;
    if (rule.list) return resolve_list(rule, node);
    if (node && node->kind != Node::Kind::table) {
      unknown_.declare(rule);
      std::string meant = node->kind == Node::Kind::list ? "; write it with single brackets" : "";
      for (const Option& option : rule.schema.options())
        if (meant.empty()) meant = chosen_by(*node, option);
      return report(node->at,
                    "wrong type for " + rule.label() + ": expected table, got " + describe(*node) + meant);
    }
    resolve_section(rule, rule.name, node);
    if (!rule.table_kind.empty() && node)
      for (const Member& member : node->members)
        if (member.value.kind == Node::Kind::table) resolve_plugin_table(rule, member);
  }

  // Resolves [comm.ucx]: options of a plugin that has no section of its own.
  void resolve_plugin_table(const SectionRule& rule, const Member& member) {
    Scope scope{rule, rule.name + "." + member.key, &member.value, member.key, false,
                {},   entries_.all().size()};
    const std::optional<Schema> schema = plugins_.find(rule.table_kind, member.key, member.at);
    scope.plugin_known = schema.has_value();
    if (schema)
      for (const Option& option : schema->options())
        scope.declared.push_back({option, rule.table_kind + " plugin " + in_quotes(member.key)});
    resolve_declared(scope);
  }

  void resolve_list(const SectionRule& rule, const Node* node) {
    const bool bare_empty = is_bare(node, "[]");
    const bool empty = !node || bare_empty || (node->kind == Node::Kind::list && node->items.empty());
    if (!node && rule.at_least_one) return resolve_section(rule, rule.name + ".0", nullptr);
    if (empty) {
      if (node && rule.at_least_one) out_.emptied.push_back(rule.name);
      return unknown_.declare(rule);
    }
    if (node->kind != Node::Kind::list) {
      unknown_.declare(rule);
      const bool table = node->kind == Node::Kind::table;
      return report(node->at, "wrong type for " + rule.label() + ": expected list of tables, got " +
                                  describe(*node) + (table ? "; write it with double brackets" : ""));
    }
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      const Node& item = node->items[i];
      if (item.kind == Node::Kind::table)
        resolve_section(rule, rule.name + "." + std::to_string(i), &item);
      else
        report(item.at, "wrong type in " + rule.label() + ": expected table, got " + describe(item));
    }
  }

  // --- one section

  void resolve_section(const SectionRule& rule, std::string path, const Node* table) {
    Scope scope{rule, std::move(path), table, "", true, {}, entries_.all().size()};
    for (const Option& option : rule.schema.options()) scope.declared.push_back({option, "core"});
    if (!rule.plugin_kind.empty()) plugins_.add(scope);
    resolve_declared(scope);
  }

  void resolve_declared(Scope& scope) {
    entries_.add(scope);
    const Location at = scope.table ? scope.table->at : Location{};
    out_.sections.push_back(
        {scope.path, &scope.rule, scope.plugin, at, scope.first, entries_.all().size() - scope.first});
  }

  void report(Location at, std::string message) { diagnostics_.add(std::move(at), std::move(message)); }

  const Node& root_;
  Diagnostics& diagnostics_;
  ResolvedRecipe out_;  // its entries are moved in at last
  UnknownNames unknown_;
  PluginOptions plugins_;
  SectionEntries entries_;
};

}  // namespace

ResolvedRecipe resolve(const Node& root, const std::shared_ptr<const Source>& main,
                       const PluginCatalog& catalog, Diagnostics& diagnostics) {
  return Resolver(root, main, catalog, diagnostics).run();
}

}  // namespace prun::recipe
