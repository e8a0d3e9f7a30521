// Checks whether each gradient that ranks have summands of is summed over them once, when it is complete.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "plan/proof/content.hpp"

namespace prun {

class SumsOverRanks {
 public:
  explicit SumsOverRanks(const Program& program) : program_(program) {}

  // An op of a function of that kind touches what operand `i` shows; `first`: it begins the sum there.
  void touch(FunctionKind kind, const Op& op, std::size_t i, bool first, const Content& content);
  // Ranks exchange it.
  void exchange(FunctionKind kind, Access access, const Content& content);
  // Before norms are taken: nothing is left that ranks have not summed.
  void check_complete() const;

  // All that is to be known of it for the next step.
  void append_state(std::vector<std::int64_t>& state) const;

 private:
  using Sum = std::pair<Id, std::int32_t>;  // gradient, instance

  bool is_sent(const Op& op) const;
  void begin(const Op& op, bool first, const Content& content);
  void check_use(FunctionKind kind, const Op& op, Access access, const Content& content) const;
  void follow_parts(FunctionKind kind, Access access, const Content& content);

  const Program& program_;
  std::set<Sum> summed_;
  std::set<Sum> unsummed_;  // of those kept in parts
};

}  // namespace prun
