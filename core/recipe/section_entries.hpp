// Collects the entries of a section: what its options are set to in the recipe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "recipe/plugin_options.hpp"
#include "recipe/unknown_names.hpp"

namespace prun::recipe {

class SectionEntries {
 public:
  SectionEntries(const std::shared_ptr<const Source>& main, PluginOptions& plugins, UnknownNames& unknown,
                 Diagnostics& diagnostics)
      : main_(main), plugins_(plugins), unknown_(unknown), diagnostics_(diagnostics) {}

  // Returns the entries of all sections so far.
  std::vector<Entry>& all() { return entries_; }
  // Adds one entry for each option that the section declares, with what its table says. Reports what is wrong
  // or missing.
  void add(const Scope& scope);

 private:
  Entry& add_entry(const Scope& scope, const Declared& declared, const std::string& key);
  void fill(const Scope& scope, const Node& table, const std::string& prefix);
  void fill_table(const Scope& scope, const Member& member, const std::string& key);
  void fill_value(const Scope& scope, const Member& member, const std::string& key);
  Entry* find_entry(const Scope& scope, const std::string& key, const Member& member);
  void report_missing(const Scope& scope);
  void report(Location at, std::string message) { diagnostics_.add(std::move(at), std::move(message)); }

  const std::shared_ptr<const Source>& main_;
  PluginOptions& plugins_;
  UnknownNames& unknown_;
  Diagnostics& diagnostics_;
  std::vector<Entry> entries_;
};

}  // namespace prun::recipe
