// Collects names in a recipe that are not declared. What one was meant to be is known once all sections are.
#pragma once

#include <string>
#include <vector>

#include "recipe/section_scope.hpp"
#include "recipe/suggest.hpp"

namespace prun::recipe {

class UnknownNames {
 public:
  // Remembers what this section accepts, or would accept if it were written otherwise.
  void remember_keys(const Scope& scope);
  void declare(const SectionRule& rule);
  // Notes a key of the section that was remembered last.
  void note(const Scope& scope, std::string key, const Location& at);
  // Reports the noted keys, then what is outside of all sections.
  void report(const Node& root, Diagnostics& diagnostics) const;

 private:
  struct UnknownKey {
    std::size_t section;
    std::string key;
    Location at;
  };

  void report_keys(Diagnostics& diagnostics) const;
  void report_top(const Node& root, Diagnostics& diagnostics) const;

  std::vector<KeySet> key_sets_;  // one for each section resolved so far
  std::vector<UnknownKey> unknown_;
};

}  // namespace prun::recipe
