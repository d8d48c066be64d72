// A stand-in for NVRTC: its images only name their source, since the host's compiler has compiled
// the kernels already. Environment: STANDIN_NVRTC ("old": it does not know the architecture).
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Program {
    std::string image;
};

}  // namespace

extern "C" {

const char *nvrtcGetErrorString(int) { return "stand-in"; }

// A version that no compiler has, so that its images are never taken for real ones.
int nvrtcVersion(int *major, int *minor) {
    *major = 0, *minor = 0;
    return 0;
}

int nvrtcCreateProgram(Program **program, const char *, const char *name, int, const char *const *, const char *const *) {
    *program = new Program{std::string("stand-in image of ") + name};
    return 0;
}

int nvrtcCompileProgram(Program *, int, const char *const *) {
    const int invalid_option = 5;
    return getenv("STANDIN_NVRTC") ? invalid_option : 0;
}

int nvrtcGetProgramLogSize(Program *, size_t *size) {
    *size = 1;
    return 0;
}

int nvrtcGetProgramLog(Program *, char *log) {
    *log = 0;
    return 0;
}

int nvrtcGetCUBINSize(Program *program, size_t *size) {
    *size = program->image.size() + 1;
    return 0;
}

int nvrtcGetCUBIN(Program *program, char *image) {
    memcpy(image, program->image.c_str(), program->image.size() + 1);
    return 0;
}

int nvrtcDestroyProgram(Program **program) {
    delete *program;
    *program = nullptr;
    return 0;
}
}
