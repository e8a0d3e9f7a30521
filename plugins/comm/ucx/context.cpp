// Configuration of UCX: the user's environment first, then what this plugin needs.
#include "context.hpp"

#include <cstdlib>

// Exported by libucs, declared in a header that is not installed.
extern "C" void ucs_debug_disable_signals();

namespace prun::ucx {
namespace {

// UCX takes over SIGSEGV and the like when it is loaded. Reports of crashes are prun's; UCX's are left in
// place if the user asks for them.
__attribute__((constructor)) void give_signals_back() {
  if (!std::getenv("UCX_HANDLE_ERRORS")) ucs_debug_disable_signals();
}

struct Setting {
  const char* variable;
  const char* name;  // to ucp_config_modify: a transport's own settings go without its prefix there
  const char* value;
};

constexpr Setting settings[] = {
    // How soon a peer behind a network that fell silent is given up.
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "1s"},
    {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "2s"},
    {"UCX_TCP_KEEPINTVL", "KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "KEEPCNT", "3"},
    // Buffers that shared memory gets at a time, all touched at once: as many as its queue is long. UCX's own
    // 512 take 4 MiB a communicator from the start.
    {"UCX_MM_RX_BUFS_GROW", "MM_RX_BUFS_GROW", "64"}};

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ReleaseConfig>;

Config read_config() {
  ucp_config_t* raw = nullptr;
  check_ucx(ucp_config_read(nullptr, nullptr, &raw), "read its configuration");
  Config config(raw);
  for (const Setting& setting : settings)
    if (!std::getenv(setting.variable))
      check_ucx(ucp_config_modify(raw, setting.name, setting.value), "take a setting");
  return config;
}

}  // namespace

void check_ucx(ucs_status_t status, const char* action) {
  if (status != UCS_OK)
    throw_error(ErrorCode::comm_failed, "UCX could not ", action, ": ", ucs_status_string(status),
                "; check the UCX_ variables of the environment");
}

Context::Context() {
  const Config config = read_config();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "prun";
  ucp_context_h context = nullptr;
  check_ucx(ucp_init(&params, config.get(), &context), "start");
  context_.reset(context);
}

}  // namespace prun::ucx
