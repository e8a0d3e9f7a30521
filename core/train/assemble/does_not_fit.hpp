// Is the refusal of a plan that needs more memory than there is, distinct from others: something may be done
// about it.
#pragma once

#include "prun/error.hpp"

namespace prun {

class DoesNotFit : public Error {
 public:
  using Error::Error;
};

}  // namespace prun
