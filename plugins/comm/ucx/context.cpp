// Configures UCX: the user's environment comes first, then what this plugin needs.
#include "context.hpp"

#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>

// The function is exported by libucs, and declared in a header that is not installed.
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
  const char* name;  // for ucp_config_modify: a transport's own settings go without its prefix there
  const char* value;
};

constexpr Setting settings[] = {
    // These settings decide how soon a peer behind a network that fell silent is given up.
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "1s"},
    {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "2s"},
    {"UCX_TCP_KEEPINTVL", "KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "KEEPCNT", "3"},
    // Shared memory gets so many buffers at a time: as many as its queue is long, and the one that comes
    // next. With one less a second lot is made at once; UCX's own 512 take 4 MiB a communicator from the
    // start.
    {"UCX_MM_RX_BUFS_GROW", "MM_RX_BUFS_GROW", "65"}};

// Keeps UCX's first error in this thread while this lives: what UCX says later follows from that, and its
// status alone does not tell which limit was met.
class Complaint {
 public:
  Complaint() { current_ = this; }
  ~Complaint() { current_ = nullptr; }
  Complaint(const Complaint&) = delete;
  Complaint& operator=(const Complaint&) = delete;

  const std::string& text() const { return text_; }

  static ucs_log_func_rc_t take(const char*, unsigned, const char*, ucs_log_level_t level,
                                const ucs_log_component_config_t*, const char* format, va_list arguments) {
    if (!current_ || level > UCS_LOG_LEVEL_ERROR) return UCS_LOG_FUNC_RC_CONTINUE;
    std::array<char, 400> text{};
    std::vsnprintf(text.data(), text.size(), format, arguments);
    if (current_->text_.empty()) current_->text_ = text.data();
    return UCS_LOG_FUNC_RC_STOP;
  }

 private:
  static thread_local Complaint* current_;
  std::string text_;
};

thread_local Complaint* Complaint::current_ = nullptr;

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ReleaseConfig>;

Config read_config() {
  ucp_config_t* raw = nullptr;
  check_ucx("read its configuration", ErrorCode::unsupported,
            [&] { return ucp_config_read(nullptr, nullptr, &raw); });
  Config config(raw);
  for (const Setting& setting : settings)
    if (!std::getenv(setting.variable))
      check_ucx("take a setting", ErrorCode::unsupported,
                [&] { return ucp_config_modify(raw, setting.name, setting.value); });
  return config;
}

}  // namespace

void check_ucx(const char* action, ErrorCode code, const std::function<ucs_status_t()>& call) {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(&Complaint::take); });
  const Complaint complaint;
  const ucs_status_t status = call();
  if (status == UCS_OK) return;
  const std::string reason = complaint.text().empty() ? "check the UCX_ variables of the environment"
                                                      : "UCX says: " + complaint.text();
  throw_error(code, "UCX could not ", action, ": ", ucs_status_string(status), "; ", reason);
}

Context::Context() {
  const Config config = read_config();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "prun";
  ucp_context_h context = nullptr;
  check_ucx("start", ErrorCode::unsupported, [&] { return ucp_init(&params, config.get(), &context); });
  context_.reset(context);
}

std::string printed(const std::function<void(FILE* out)>& print) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const out = ::open_memstream(&text, &size);
  if (!out) throw_error(ErrorCode::unsupported, "no memory for what UCX prints");
  print(out);
  std::fclose(out);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return {text, size};
}

// Reads lines such as "resource 3  :  md 2  dev 1  flags -- tcp/eth0".
std::set<std::string> Context::transports() const {
  std::set<std::string> found;
  std::istringstream lines(printed([&](FILE* out) { ucp_context_print_info(context_.get(), out); }));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t slash = line.rfind('/'), blank = line.rfind(' ', slash);
    if (line.find("resource") == std::string::npos || slash == std::string::npos ||
        blank == std::string::npos)
      continue;
    found.insert(line.substr(blank + 1, slash - blank - 1));
  }
  return found;
}

}  // namespace prun::ucx
