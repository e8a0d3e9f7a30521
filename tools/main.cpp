// Starts prun, which trains what a recipe describes.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "base/machine.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "plugin/guarded_plugin.hpp"
#include "prun/error.hpp"

namespace {

int dispatch(const prun::Arguments& arguments) {
  return prun::commands_named(arguments.verb, arguments.words).front()->run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const prun::UntimelyEndWatch watch;
  prun::prepare_output();
  try {
    prun::become_external_verb(argc, argv);
    // A file size limit shows up as an error of the write, not as our death.
    std::signal(SIGXFSZ, SIG_IGN);
    prun::meet_process_limits();
    const int code = dispatch(prun::parse_arguments(argc, argv));
    prun::finish_output();
    return code;
  } catch (const prun::Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "prun: %s\n", error.what());
    return prun::exit_code(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "prun: %s\n", prun::out_of_memory);
    return prun::exit_code(prun::ErrorCode::unsupported);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "prun: unexpected: %s\n", error.what());
    return 1;
  }
}
