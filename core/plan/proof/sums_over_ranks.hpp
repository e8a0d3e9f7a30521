// Checks whether each gradient that ranks have summands of is summed over them once, when it is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/proof/content.hpp"

namespace prun {

class SumsOverRanks {
 public:
  explicit SumsOverRanks(const Program& program) : program_(program) {}

  // Notes that an op of a function of that kind touches what operand `i` shows; `first` says that it begins
  // the sum there.
  void touch(FunctionKind kind, const Op& op, std::size_t i, bool first, const Content& content);
  // Notes that ranks exchange the content.
  void exchange(FunctionKind kind, Access access, const Content& content);
  // Checks that ranks have summed what that instance, or any, has to sum: before its norm is taken, and
  // before all norms together are used.
  void check_complete(std::optional<std::int32_t> instance) const;

  // Appends all that the next step depends on.
  void append_state(std::vector<std::int64_t>& state) const;

 private:
  using Sum = std::pair<Id, std::int32_t>;  // gradient and instance

  bool is_sent(const Op& op) const;
  bool keeps_apart(const Op& op, Id gradient) const;
  void begin(const Op& op, bool first, const Content& content);
  void check_use(FunctionKind kind, const Op& op, Access access, const Content& content) const;
  void follow_parts(FunctionKind kind, Access access, const Content& content);

  const Program& program_;
  std::set<Sum> summed_;
  std::set<Sum> unsummed_;  // sums of gradients kept in parts
};

}  // namespace prun
