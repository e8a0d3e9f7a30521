// UCX itself: one context a plugin object, shared by its communicators. It is made at first use, so that a
// process may fork before.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "prun/error.hpp"

namespace prun::ucx {

// For calls that fail only if something is wrong with this machine or with UCX.
void check_ucx(ucs_status_t status, const char* action);

class Context {
 public:
  Context();
  ucp_context_h get() const { return context_.get(); }

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
};

}  // namespace prun::ucx
