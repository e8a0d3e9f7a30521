// What each verb does. Every command returns the exit code and raises Error for what the user can mend.
#pragma once

#include "cli/arguments.hpp"

namespace prun {

int run_command(const Arguments& arguments);
int check_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int trace_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int generate_command(const Arguments& arguments);
int ckpt_command(const Arguments& arguments);
int tokenize_command(const Arguments& arguments);
int import_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int explain_command(const Arguments& arguments);
int reference_command(const Arguments& arguments);
int ops_command(const Arguments& arguments);
int plugins_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int runs_command(const Arguments& arguments);
int watch_command(const Arguments& arguments);
int diff_command(const Arguments& arguments);
int init_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);
int man_command(const Arguments& arguments);
int help_command(const Arguments& arguments);
int version_command(const Arguments& arguments);
int convert_command(const Arguments& arguments);

}  // namespace prun
