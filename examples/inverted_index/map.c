/* Emit (word, document) for every word of the document that this task reads.
 *
 * The document is the input file: a task finds its name in its environment. Words are runs of letters, in small ones.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    const char *path = getenv("mapreduce_map_input_file");
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *document = slash ? slash + 1 : path ? path : "stdin";
    int c, in_word = 0;

    while ((c = getchar()) != EOF) {
        if (isalpha(c)) {
            putchar(tolower(c));
            in_word = 1;
        } else if (in_word) {
            printf("\t%s\n", document);
            in_word = 0;
        }
    }
    if (in_word)
        printf("\t%s\n", document);
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
