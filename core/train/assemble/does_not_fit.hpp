// Distinguishes the refusal of a plan that needs more memory than there is from others: callers may try
// something else.
#pragma once

#include "prun/error.hpp"

namespace prun {

class DoesNotFit : public Error {
 public:
  using Error::Error;
};

}  // namespace prun
