#include "plan/proof/content.hpp"

namespace prun {

std::string describe(const Program& program, const Content& content) {
  if (content.value == none) return "nothing";
  const std::string name =
      detail::concat("'", program.value(content.value).name, "' of instance ", content.instance);
  return content.microbatch < 0 ? name : detail::concat(name, ", microbatch ", content.microbatch);
}

}  // namespace prun
