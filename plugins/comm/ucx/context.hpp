// Wraps UCX itself: there is one context for each plugin object, shared by its communicators. It is made at
// first use, so that a process may fork before.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "prun/error.hpp"

namespace prun::ucx {

// Makes a call that fails only if something is wrong with this machine, its limits or UCX. What UCX itself
// says about the failure becomes part of the message.
void check_ucx(const char* action, ErrorCode code, const std::function<ucs_status_t()>& call);

// Returns what a function of UCX prints: it tells of its transports in print alone.
std::string printed(const std::function<void(FILE* out)>& print);

class Context {
 public:
  Context();
  ucp_context_h get() const { return context_.get(); }
  // Returns the transports that UCX can use here: "self", "tcp", "posix".
  std::set<std::string> transports() const;

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
};

}  // namespace prun::ucx
