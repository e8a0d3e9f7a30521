#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> documents_examples() {
  using namespace example_dims;
  return {
      OpExample("document_starts").numbers(0, {b, s}, 0, 3).attr("end", 2),
      OpExample("token_types").numbers(0, {b, s}, 0, 3).attr("separator", 2),
      OpExample("ahead").numbers(0, {b, s}, 0, 9).attr("by", 2).attr("otherwise", -1),
  };
}

}  // namespace prun
